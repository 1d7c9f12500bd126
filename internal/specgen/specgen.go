package specgen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/driverroot"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Config says where to read and what to write into specs.
type Config struct {
	Roots   roots.Roots
	Mapping roots.Mapping
	// HookPath is where gpu-hook lies on the host; no hook when empty.
	HookPath string
	// LibraryDirs are searched first, within the driver root.
	LibraryDirs []string
}

// Result is what Generate made.
type Result struct {
	// Specs are the private specs by kind; a kind without a device is absent.
	Specs map[string]*specs.Spec
	// Inventory is the one that was given, with the health that the node's files
	// allow.
	Inventory device.Inventory
	Report    Report
}

// Report is what was looked for on the node.
type Report struct {
	Driver *driverroot.Report `json:"driver,omitempty"`
	Nodes  []Node             `json:"nodes"`
	// Unserved says why nothing is served, when that is so.
	Unserved string `json:"unserved,omitempty"`
}

// Present lists the nodes that were found, each of which a container may get.
func (r *Report) Present() []string {
	var out []string
	for _, n := range r.Nodes {
		if n.Found {
			out = append(out, n.Path)
		}
	}
	return out
}

// Node is one device node that was looked for.
type Node struct {
	Path  string `json:"path"`
	For   string `json:"for"`
	Found bool   `json:"found"`
	Why   string `json:"why,omitempty"`
}

// Generate makes the specs of a node. A driver that cannot serve makes every
// card unhealthy, with the reason; it is an error of no call.
func Generate(ctx context.Context, inv device.Inventory, cfg Config) (*Result, error) {
	g := &generator{cfg: cfg, res: &Result{Specs: map[string]*specs.Spec{}, Inventory: clone(inv)}}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("generate specs: %w", err)
	}
	if inv.Driver.State != device.DriverReady {
		g.res.Report.Unserved = inv.Driver.Reason
		return g.res, nil
	}
	g.gpuSpec()
	if inv.Driver.Absent {
		g.noDriver()
		return g.res, nil
	}
	g.driverSpec()
	g.extraSpecs()
	return g.res, nil
}

func clone(inv device.Inventory) device.Inventory {
	inv.GPUs = slices.Clone(inv.GPUs)
	for i := range inv.GPUs {
		inv.GPUs[i].MIGDevices = slices.Clone(inv.GPUs[i].MIGDevices)
	}
	return inv
}

type generator struct {
	cfg Config
	res *Result
}

// node adds a device node to edits when it is there, and reports it.
func (g *generator) node(edits *specs.ContainerEdits, container, purpose string) bool {
	host := g.cfg.Roots.DevPath(container)
	why := checkNode(host)
	g.res.Report.Nodes = append(g.res.Report.Nodes, Node{Path: container, For: purpose, Found: why == "", Why: why})
	if why != "" {
		return false
	}
	n := &specs.DeviceNode{Path: container, Permissions: "rw"}
	if mapped := g.cfg.Mapping.ToHost(host); mapped != container {
		n.HostPath = mapped
	}
	edits.DeviceNodes = append(edits.DeviceNodes, n)
	return true
}

func checkNode(host string) string {
	info, err := os.Lstat(host)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist", host)
	case err != nil:
		return err.Error()
	case info.Mode()&fs.ModeCharDevice == 0:
		return fmt.Sprintf("%s is not a character device", host)
	}
	return ""
}

func (g *generator) gpuSpec() {
	spec := &specs.Spec{Kind: cdi.KindGPU}
	for i := range g.res.Inventory.GPUs {
		gpu := &g.res.Inventory.GPUs[i]
		edits, why := g.gpuEdits(gpu)
		if why != "" && gpu.Health.Healthy {
			gpu.Health = device.Health{Reason: why}
		}
		if why != "" {
			continue
		}
		// A card in MIG mode that is given whole is given with all its instances.
		whole := edits
		for j := range gpu.MIGDevices {
			if d, ok := g.migDevice(edits, &gpu.MIGDevices[j]); ok && gpu.MIGEnabled {
				spec.Devices = append(spec.Devices, d)
				whole = cdi.JoinEdits(whole, d.ContainerEdits)
			}
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: cdi.DeviceName(gpu.UUID), ContainerEdits: whole})
	}
	g.add(spec)
}

// gpuEdits are the nodes of a whole card.
func (g *generator) gpuEdits(gpu *device.GPU) (specs.ContainerEdits, string) {
	var edits specs.ContainerEdits
	if gpu.Node != "" {
		if !g.node(&edits, gpu.Node, gpu.UUID) {
			return edits, "its device node is not usable: " + checkNode(g.cfg.Roots.DevPath(gpu.Node))
		}
		return edits, ""
	}
	if gpu.Minor < 0 {
		return edits, "its device minor is not known, so its device node is not"
	}
	node := devnodes.GPU(gpu.Minor)
	if !g.node(&edits, node, gpu.UUID) {
		return edits, fmt.Sprintf("its device node is not usable: %s; create it with `nvidia-modprobe -c=%d`", checkNode(g.cfg.Roots.DevPath(node)), gpu.Minor)
	}
	if !gpu.MIGEnabled {
		g.drmNodes(&edits, gpu)
	}
	return edits, ""
}

// noDriver is the driver of an inventory that has none: a variable, since a CDI
// device may not be without edits.
func (g *generator) noDriver() {
	control := specs.Device{Name: cdi.DriverControl, ContainerEdits: specs.ContainerEdits{Env: []string{"NRI_GPU_DRIVER=absent"}}}
	g.add(&specs.Spec{Kind: cdi.KindDriver, Devices: []specs.Device{control}})
}

// drmNodes are optional: a node without nvidia-drm has none.
func (g *generator) drmNodes(edits *specs.ContainerEdits, gpu *device.GPU) {
	for _, n := range gpu.DRMNodes {
		g.node(edits, path.Join("/dev/dri", n), gpu.UUID)
	}
}

// migDevice is the parent's node and the two capabilities of the instance.
// Without a capability node a container would see an unusable parent.
func (g *generator) migDevice(parent specs.ContainerEdits, m *device.MIGDevice) (specs.Device, bool) {
	edits := specs.ContainerEdits{DeviceNodes: slices.Clone(parent.DeviceNodes)}
	for _, minor := range []int{m.GPUInstanceMinor, m.ComputeInstanceMinor} {
		if minor >= 0 && g.node(&edits, devnodes.Capability(minor), m.UUID) {
			continue
		}
		if m.Health.Healthy {
			m.Health = device.Health{Reason: fmt.Sprintf("its capability node %s is not usable; create it with `nvidia-modprobe -f`", devnodes.Capability(minor))}
		}
		return specs.Device{}, false
	}
	return specs.Device{Name: cdi.DeviceName(m.UUID), ContainerEdits: edits}, true
}

// add keeps a spec that has a device; devices are in the order of their names.
func (g *generator) add(spec *specs.Spec) {
	if len(spec.Devices) == 0 {
		return
	}
	slices.SortFunc(spec.Devices, func(a, b specs.Device) int { return strings.Compare(a.Name, b.Name) })
	g.res.Specs[spec.Kind] = spec
}

// unserved makes every card unhealthy for a reason that concerns them all.
func (g *generator) unserved(why string) {
	g.res.Report.Unserved = why
	for i := range g.res.Inventory.GPUs {
		if gpu := &g.res.Inventory.GPUs[i]; gpu.Health.Healthy {
			gpu.Health = device.Health{Reason: why}
		}
	}
}
