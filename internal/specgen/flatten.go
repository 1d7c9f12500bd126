package specgen

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/driverroot"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Naming is how a device of a public kind is named.
type Naming string

// The namings. A device has one name for each that is chosen.
const (
	// ByUUID is "GPU-…" and "MIG-…".
	ByUUID Naming = "uuid"
	// ByIndex is "0", and "0:1" for a MIG device.
	ByIndex Naming = "index"
	// ByTypeIndex is "gpu0" and "mig0:1", for readers that refuse a leading digit.
	ByTypeIndex Naming = "type-index"
)

// Flattening says what one public spec holds.
type Flattening struct {
	Kind         string
	Capabilities []cdi.Capability
	Names        []Naming
	// NoAll leaves out the device "all".
	NoAll bool
	// HookMounts has gpu-hook mount the driver's files, and not the runtime.
	HookMounts bool
	// MIGParents also names the cards in MIG mode, whole.
	MIGParents bool
}

// Flatten makes one spec in which the control nodes and the capabilities apply
// to every device, with at most one hook.
func (r *Result) Flatten(f Flattening) (*specs.Spec, error) {
	driver, gpus := r.Specs[cdi.KindDriver], r.Specs[cdi.KindGPU]
	if driver == nil || gpus == nil {
		return nil, r.nothing()
	}
	spec := &specs.Spec{Kind: f.Kind, ContainerEdits: r.common(driver, f.Capabilities)}
	if f.HookMounts {
		spec.ContainerEdits = cdi.MountByHook(spec.ContainerEdits, driverroot.Required)
	}
	var all specs.ContainerEdits
	devices := r.Inventory.Allocatables()
	if f.MIGParents {
		devices = r.Inventory.Devices()
	}
	for _, a := range devices {
		i := slices.IndexFunc(gpus.Devices, func(d specs.Device) bool { return d.Name == cdi.DeviceName(a.UUID) })
		if i < 0 || !a.Health.Healthy {
			continue
		}
		edits := gpus.Devices[i].ContainerEdits
		for _, name := range names(a, f.Names) {
			spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: edits})
		}
		all = cdi.JoinEdits(all, edits)
	}
	if len(spec.Devices) == 0 {
		return nil, r.nothing()
	}
	if !f.NoAll {
		spec.Devices = append(spec.Devices, specs.Device{Name: cdi.DeviceAll, ContainerEdits: all})
	}
	return spec, nil
}

// nothing says why there is no device to write.
func (r *Result) nothing() error {
	if r.Report.Unserved != "" {
		return fmt.Errorf("no GPU can be served: %s", r.Report.Unserved)
	}
	for i := range r.Inventory.GPUs {
		if g := &r.Inventory.GPUs[i]; !g.Health.Healthy {
			return fmt.Errorf("no GPU can be served: %s: %s", g.UUID, g.Health.Reason)
		}
	}
	if r.Inventory.Driver.State != device.DriverReady {
		return fmt.Errorf("no GPU can be served: the driver is %s: %s", r.Inventory.Driver.State, r.Inventory.Driver.Reason)
	}
	return errors.New("no GPU can be served: every GPU is in MIG mode and has no MIG device")
}

// common joins the control nodes and the capabilities. NVIDIA_VISIBLE_DEVICES
// keeps a legacy NVIDIA runtime from injecting a second time.
func (r *Result) common(driver *specs.Spec, caps []cdi.Capability) specs.ContainerEdits {
	out := specs.ContainerEdits{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}
	for _, d := range driver.Devices {
		if d.Name == cdi.DriverControl || slices.Contains(caps, cdi.Capability(d.Name)) {
			out = cdi.JoinEdits(out, d.ContainerEdits)
		}
	}
	out.Hooks = cdi.MergeHooks(out.Hooks)
	return out
}

func names(a device.Allocatable, namings []Naming) []string {
	out := make([]string, 0, len(namings))
	for _, n := range namings {
		index := strconv.Itoa(a.GPU.Index)
		prefix := "gpu"
		if a.MIG != nil {
			index, prefix = fmt.Sprintf("%d:%d", a.GPU.Index, a.MIG.Index), "mig"
		}
		switch n {
		case ByUUID:
			out = append(out, cdi.DeviceName(a.UUID))
		case ByIndex:
			out = append(out, index)
		case ByTypeIndex:
			out = append(out, prefix+index)
		}
	}
	return out
}
