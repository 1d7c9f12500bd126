package nvidiaconfig

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// Policies of NVIDIA's sharedDevicesAllocationPolicy.
const (
	Distributed = "distributed"
	Packed      = "packed"
)

// Apply returns a configuration of resources changed by the file, and the keys
// that are ignored, each with the reason. resource names without a domain get
// that of base.Whole.
func (f *File) Apply(base resources.Config) (cfg resources.Config, ignored []string, err error) {
	cfg = base
	if s := f.Flags.MIGStrategy; s != nil {
		cfg.MIG = resources.MIGStrategy(*s)
	}
	if p := f.Flags.Plugin; p != nil && p.SharedAllocationPolicy != nil {
		switch *p.SharedAllocationPolicy {
		case Packed, Distributed:
			cfg.Packed = *p.SharedAllocationPolicy == Packed
		default:
			err = fmt.Errorf("sharedDevicesAllocationPolicy %q is neither %q nor %q", *p.SharedAllocationPolicy, Distributed, Packed)
		}
	}
	qualify := func(name string) string {
		if name == "" || strings.Contains(name, "/") {
			return name
		}
		return path.Join(path.Dir(base.Whole), name)
	}
	if f.Resources != nil {
		cfg.GPUs, cfg.MIGs = patterns(f.Resources.GPUs, qualify), patterns(f.Resources.MIGs, qualify)
	}
	shares, shareErr := f.shares(qualify)
	cfg.Shares = shares
	if err = errors.Join(err, shareErr, cfg.Validate()); err != nil {
		return base, nil, err
	}
	return cfg, f.ignored(), nil
}

func patterns(list []Pattern, qualify func(string) string) []resources.Pattern {
	var out []resources.Pattern
	for _, p := range list {
		out = append(out, resources.Pattern{Pattern: p.Pattern, Resource: qualify(p.Name)})
	}
	return out
}

func (f *File) shares(qualify func(string) string) ([]resources.Share, error) {
	slicing, mps := f.Sharing.TimeSlicing, f.Sharing.MPS
	switch {
	case !slicing.empty() && !mps.empty():
		return nil, errors.New("sharing: timeSlicing and mps exclude each other; keep one")
	case !mps.empty():
		return mps.shares(resources.MPS, true, qualify), nil
	case !slicing.empty():
		return slicing.shares(resources.TimeSlicing, false, qualify), nil
	}
	return nil, nil
}

// empty treats a block without a key, which NVIDIA's plugin prints and refuses
// to read, as what it is.
func (r *Replicated) empty() bool { return r == nil || len(r.Resources) == 0 }

func (r *Replicated) shares(s resources.Strategy, failMultiple bool, qualify func(string) string) []resources.Share {
	if r.FailRequestsGreaterThanOne != nil {
		failMultiple = *r.FailRequestsGreaterThanOne
	}
	var out []resources.Share
	for _, res := range r.Resources {
		share := resources.Share{
			Resource: qualify(res.Name), Strategy: s, Replicas: res.Replicas, Rename: qualify(res.Rename), FailMultiple: failMultiple,
			Devices: resources.Selector{Count: res.Devices.Count, List: res.Devices.List},
		}
		if r.RenameByDefault {
			share.Rename = cmp.Or(share.Rename, share.Resource+".shared")
		}
		out = append(out, share)
	}
	return out
}

// ignored names what is set and has no meaning here.
func (f *File) ignored() []string {
	var out []string
	add := func(set bool, key, why string) {
		if set {
			out = append(out, key+": "+why)
		}
	}
	const (
		byName  = "devices always travel as CDI names, whichever way the runtime takes"
		restart = "it is a flag of the daemon; set it there"
		labels  = "node labels are configured by the daemon's flags"
	)
	fl := f.Flags
	add(fl.FailOnInitError != nil, "flags.failOnInitError", "a node whose driver is not ready is looked at until it is")
	add(fl.DeviceDiscoveryStrategy != nil, "flags.deviceDiscoveryStrategy", "NVML is asked")
	add(fl.DriverRoot != nil, "flags.nvidiaDriverRoot", restart)
	add(fl.DevRoot != nil, "flags.nvidiaDevRoot", restart)
	add(fl.MPSRoot != nil, "flags.mpsRoot", restart)
	add(fl.UseNodeFeatureAPI != nil, "flags.useNodeFeatureAPI", labels)
	add(fl.GFD != nil, "flags.gfd", labels)
	add(on(fl.GDRCopy), "flags.gdrcopyEnabled", "a container asks for it with NVIDIA_GDRCOPY=enabled")
	add(on(fl.GDS), "flags.gdsEnabled", "a container asks for it with NVIDIA_GDS=enabled")
	add(on(fl.MOFED), "flags.mofedEnabled", "a container asks for it with NVIDIA_MOFED=enabled")
	if p := fl.Plugin; p != nil {
		add(on(p.PassDeviceSpecs), "flags.plugin.passDeviceSpecs", byName)
		add(p.DeviceListStrategy != nil, "flags.plugin.deviceListStrategy", byName)
		add(p.DeviceIDStrategy != nil && *p.DeviceIDStrategy != "uuid", "flags.plugin.deviceIDStrategy", "a card is named by its UUID, which no reboot changes")
		add(p.CDIAnnotationPrefix != nil, "flags.plugin.cdiAnnotationPrefix", byName)
		add(p.NVIDIACTKPath != nil, "flags.plugin.nvidiaCTKPath", "gpu-hook takes its place")
		add(p.ContainerDriverRoot != nil, "flags.plugin.containerDriverRoot", restart)
	}
	add(f.IMEX != nil && (len(f.IMEX.ChannelIDs) > 0 || f.IMEX.Required), "imex", "IMEX channels are not injected")
	return out
}

func on(b *bool) bool { return b != nil && *b }
