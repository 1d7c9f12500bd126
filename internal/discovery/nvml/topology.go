package nvml

import (
	"cmp"
	"slices"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
)

// maxLinks is NVML_NVLINK_MAX_LINKS of nvml.h.
const maxLinks = 18

// topology returns the links between the GPUs, read once for a set of GPUs: the
// wiring does not change under a running machine.
func (w *worker) topology(gpus []device.GPU) []device.Link {
	uuids := make([]string, len(gpus))
	for i := range gpus {
		uuids[i] = gpus[i].UUID
	}
	if w.linksOf == nil || !slices.Equal(w.linksOf, uuids) {
		w.linksOf, w.links = uuids, w.readLinks(gpus)
	}
	return w.links
}

// ports is where the NVLinks of one GPU lead.
type ports struct {
	dev      gonvml.Device
	toSwitch int
	direct   map[string]int // PCI bus ID of the other GPU → links
}

func (w *worker) readLinks(gpus []device.GPU) []device.Link {
	all := make([]ports, len(gpus))
	for i := range gpus {
		dev, ret := w.lib.DeviceGetHandleByUUID(gpus[i].UUID)
		if ret != gonvml.SUCCESS {
			continue
		}
		all[i] = w.readPorts(dev)
	}
	var links []device.Link
	for i := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			if all[i].dev == nil || all[j].dev == nil {
				continue
			}
			links = append(links, link(&gpus[i], &gpus[j], all[i], all[j]))
		}
	}
	slices.SortFunc(links, func(x, y device.Link) int {
		return cmp.Or(strings.Compare(x.A, y.A), strings.Compare(x.B, y.B))
	})
	return links
}

func link(g, h *device.GPU, p, q ports) device.Link {
	// Through switches, each GPU reaches every other with all its links.
	l := device.Link{A: g.UUID, B: h.UUID, NVLinks: p.direct[h.PCIBusID] + min(p.toSwitch, q.toSwitch)}
	if l.A > l.B {
		l.A, l.B = l.B, l.A
	}
	if level, ret := p.dev.GetTopologyCommonAncestor(q.dev); ret == gonvml.SUCCESS {
		l.PCIe = pcieLevel(level)
	}
	return l
}

func (w *worker) readPorts(dev gonvml.Device) ports {
	p := ports{dev: dev, direct: map[string]int{}}
	if !w.has("nvmlDeviceGetNvLinkState") {
		return p
	}
	knowsType := w.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	for n := range maxLinks {
		if state, ret := dev.GetNvLinkState(n); ret != gonvml.SUCCESS || state != gonvml.FEATURE_ENABLED {
			continue
		}
		if knowsType {
			if kind, ret := dev.GetNvLinkRemoteDeviceType(n); ret == gonvml.SUCCESS && kind == gonvml.NVLINK_DEVICE_TYPE_SWITCH {
				p.toSwitch++
				continue
			}
		}
		if pci, ret := dev.GetNvLinkRemotePciInfo(n); ret == gonvml.SUCCESS {
			p.direct[hostfs.NormalizeBusID(cString(pci.BusId[:]))]++
		}
	}
	return p
}

func pcieLevel(level gonvml.GpuTopologyLevel) device.PCIeLevel {
	switch level {
	case gonvml.TOPOLOGY_INTERNAL:
		return device.PCIeSameBoard
	case gonvml.TOPOLOGY_SINGLE:
		return device.PCIeSingleSwitch
	case gonvml.TOPOLOGY_MULTIPLE:
		return device.PCIeMultiSwitch
	case gonvml.TOPOLOGY_HOSTBRIDGE:
		return device.PCIeHostBridge
	case gonvml.TOPOLOGY_NODE:
		return device.PCIeSameNode
	default:
		return device.PCIeSystem
	}
}
