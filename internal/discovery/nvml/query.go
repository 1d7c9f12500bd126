package nvml

import (
	"fmt"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
)

// query reads one GPU. The text says which call failed when it cannot even be
// named.
func (w *worker) query(index int) (device.GPU, string) {
	dev, ret := w.lib.DeviceGetHandleByIndex(index)
	if ret != gonvml.SUCCESS {
		return device.GPU{}, fmt.Sprintf("nvmlDeviceGetHandleByIndex: %v", ret)
	}
	gpu := device.GPU{Index: index, NUMANode: -1, Minor: -1, Health: device.Health{Healthy: true}}
	if gpu.UUID, ret = dev.GetUUID(); ret != gonvml.SUCCESS {
		return device.GPU{}, fmt.Sprintf("nvmlDeviceGetUUID: %v", ret)
	}
	w.identity(dev, &gpu)
	w.describe(dev, &gpu)
	w.condition(dev, &gpu)
	w.migDevices(dev, &gpu)
	return gpu, ""
}

// identity reads what injection cannot do without.
func (w *worker) identity(dev gonvml.Device, gpu *device.GPU) {
	pci, ret := dev.GetPciInfo()
	if ret == gonvml.SUCCESS {
		gpu.PCIBusID = hostfs.NormalizeBusID(cString(pci.BusId[:]))
	} else {
		unhealthy(gpu, "nvmlDeviceGetPciInfo", ret)
	}
	minor, ret := dev.GetMinorNumber()
	if ret == gonvml.SUCCESS {
		gpu.Minor = minor
	} else {
		unhealthy(gpu, "nvmlDeviceGetMinorNumber", ret)
	}
}

func (w *worker) describe(dev gonvml.Device, gpu *device.GPU) {
	name, ret := dev.GetName()
	if ret == gonvml.SUCCESS {
		gpu.Model = name
	} else {
		unhealthy(gpu, "nvmlDeviceGetName", ret)
	}
	memory, ret := dev.GetMemoryInfo()
	switch {
	case ret == gonvml.SUCCESS:
		gpu.MemoryBytes = memory.Total
	case ret != gonvml.ERROR_NOT_SUPPORTED: // cards without memory of their own
		unhealthy(gpu, "nvmlDeviceGetMemoryInfo", ret)
	}
	if major, minor, ret := dev.GetCudaComputeCapability(); ret == gonvml.SUCCESS {
		gpu.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
	if w.has("nvmlDeviceGetArchitecture") {
		if arch, ret := dev.GetArchitecture(); ret == gonvml.SUCCESS {
			gpu.Architecture = architecture(arch)
		}
	}
}

func (w *worker) migDevices(dev gonvml.Device, gpu *device.GPU) {
	if !w.has("nvmlDeviceGetMigMode") {
		return
	}
	mode, _, ret := dev.GetMigMode()
	if ret == gonvml.SUCCESS || ret == gonvml.ERROR_NOT_SUPPORTED {
		capable := ret == gonvml.SUCCESS
		gpu.MIGCapable = &capable
	}
	if ret != gonvml.SUCCESS || mode != gonvml.DEVICE_MIG_ENABLE {
		return
	}
	gpu.MIGEnabled = true
	most, ret := dev.GetMaxMigDeviceCount()
	if ret != gonvml.SUCCESS {
		unhealthy(gpu, "nvmlDeviceGetMaxMigDeviceCount", ret)
		return
	}
	for i := range most {
		mig, ret := dev.GetMigDeviceHandleByIndex(i)
		if ret == gonvml.ERROR_NOT_FOUND || ret == gonvml.ERROR_INVALID_ARGUMENT {
			continue // indexes may have gaps
		}
		if ret != gonvml.SUCCESS {
			unhealthy(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", ret)
			return
		}
		if m, ok := migDevice(mig, i); ok {
			m.Attributes = w.migAttributes(mig)
			gpu.MIGDevices = append(gpu.MIGDevices, m)
		} else {
			unhealthy(gpu, fmt.Sprintf("identity of MIG device %d", i), gonvml.ERROR_UNKNOWN)
		}
	}
}

func migDevice(dev gonvml.Device, index int) (device.MIGDevice, bool) {
	m := device.MIGDevice{Index: index, GPUInstanceMinor: -1, ComputeInstanceMinor: -1, Health: device.Health{Healthy: true}}
	var ret [3]gonvml.Return
	m.UUID, ret[0] = dev.GetUUID()
	m.GPUInstance, ret[1] = dev.GetGpuInstanceId()
	m.ComputeInstance, ret[2] = dev.GetComputeInstanceId()
	if ret != [3]gonvml.Return{} {
		return m, false
	}
	if name, r := dev.GetName(); r == gonvml.SUCCESS {
		// "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
		if _, profile, ok := strings.Cut(name, " MIG "); ok {
			m.Profile = profile
		}
	}
	if memory, r := dev.GetMemoryInfo(); r == gonvml.SUCCESS {
		m.MemoryBytes = memory.Total
	}
	return m, true
}

// has guards a call that older drivers do not have: calling a symbol that is
// not there would end the process.
func (w *worker) has(symbol string) bool {
	return w.lib.Extensions().LookupSymbol(symbol) == nil
}

func unhealthy(gpu *device.GPU, call string, ret gonvml.Return) {
	if gpu.Health.Healthy {
		gpu.Health = device.Health{Reason: fmt.Sprintf("%s: %v", call, ret)}
	}
}
