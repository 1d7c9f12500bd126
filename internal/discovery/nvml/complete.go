package nvml

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
)

// complete adds what procfs and sysfs know, and the cards that NVML could not
// name: a card that is lost keeps its identity and is unhealthy.
func (d *Discoverer) complete(a answer) device.Inventory {
	inv := a.Inventory
	if inv.Driver.Version == "" {
		inv.Driver.Version = hostfs.DriverVersion(d.opts.Roots)
	}
	for _, index := range slices.Sorted(maps.Keys(a.Lost)) {
		inv.GPUs = append(inv.GPUs, d.lost(&inv, index, a.Lost[index])...)
	}
	minors := hostfs.ReadMIGMinors(d.opts.Roots)
	for i := range inv.GPUs {
		d.addHostFacts(&inv.GPUs[i], minors)
	}
	slices.SortFunc(inv.GPUs, func(a, b device.GPU) int { return a.Index - b.Index })
	return inv
}

func (d *Discoverer) addHostFacts(gpu *device.GPU, minors hostfs.MIGMinors) {
	r := d.opts.Roots
	gpu.NUMANode = hostfs.NUMANode(r, gpu.PCIBusID)
	gpu.DRMNodes = hostfs.DRMNodes(r, gpu.PCIBusID)
	gpu.PCIClass = hostfs.PCIClass(r, gpu.PCIBusID)
	gpu.VGPU = d.vgpu(gpu)
	for i := range gpu.MIGDevices {
		m := &gpu.MIGDevices[i]
		m.GPUInstanceMinor = minors.Instance(r, gpu.Minor, m.GPUInstance, -1)
		m.ComputeInstanceMinor = minors.Instance(r, gpu.Minor, m.GPUInstance, m.ComputeInstance)
		if m.Health.Healthy && (m.GPUInstanceMinor < 0 || m.ComputeInstanceMinor < 0) {
			m.Health = device.Health{Reason: "its capability minors are not in /proc/driver/nvidia-caps/mig-minors"}
		}
	}
}

// vgpu asks the card itself, and so only once for each: what it is does not
// change.
func (d *Discoverer) vgpu(gpu *device.GPU) *device.VGPU {
	for i := range d.last.GPUs {
		if last := &d.last.GPUs[i]; last.UUID == gpu.UUID && last.VGPU != nil {
			return last.VGPU
		}
	}
	return hostfs.VGPU(d.opts.Roots, gpu.PCIBusID)
}

// lost finds out who the card at an index was: from the last snapshot, else the
// one card that procfs lists and NVML did not.
func (d *Discoverer) lost(inv *device.Inventory, index int, why string) []device.GPU {
	known := func(uuid string) bool {
		return slices.ContainsFunc(inv.GPUs, func(g device.GPU) bool { return g.UUID == uuid })
	}
	reason := device.Health{Reason: why}
	for i := range d.last.GPUs {
		if g := d.last.GPUs[i]; g.Index == index && !known(g.UUID) {
			g.Health = reason
			return []device.GPU{g}
		}
	}
	for _, c := range hostfs.Cards(d.opts.Roots) {
		if c.UUID != "" && !known(c.UUID) {
			return []device.GPU{{
				UUID: c.UUID, Index: index, Minor: c.Minor, PCIBusID: c.PCIBusID, Model: c.Model, NUMANode: -1, Health: reason,
			}}
		}
	}
	if inv.Driver.Reason == "" {
		inv.Driver.Reason = fmt.Sprintf("GPU with index %d cannot be named: %s", index, why)
	}
	return nil
}
