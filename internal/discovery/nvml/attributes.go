package nvml

import (
	"fmt"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// migAttributes is nil when the driver does not say. No device needs them, so
// a failure is no fault of the device.
func (w *worker) migAttributes(dev gonvml.Device) *device.MIGAttributes {
	if !w.has("nvmlDeviceGetAttributes_v2") && !w.has("nvmlDeviceGetAttributes") {
		return nil
	}
	a, ret := dev.GetAttributes()
	if ret != gonvml.SUCCESS {
		return nil
	}
	return &device.MIGAttributes{
		Multiprocessors: int(a.MultiprocessorCount),
		GPUSlices:       int(a.GpuInstanceSliceCount),
		ComputeSlices:   int(a.ComputeInstanceSliceCount),
		CopyEngines:     int(a.SharedCopyEngineCount),
		Decoders:        int(a.SharedDecoderCount),
		Encoders:        int(a.SharedEncoderCount),
		JPEGEngines:     int(a.SharedJpegCount),
		OFAEngines:      int(a.SharedOfaCount),
	}
}

// fabric is nil unless the card has joined a fabric: while its registration
// goes on, the identity may still change.
func (w *worker) fabric(dev gonvml.Device) *device.Fabric {
	switch {
	case w.has("nvmlDeviceGetGpuFabricInfoV"):
		info, ret := dev.GetGpuFabricInfoV().V2()
		return joined(ret, info.State, info.Status, info.ClusterUuid, info.CliqueId)
	case w.has("nvmlDeviceGetGpuFabricInfo"): // older drivers
		info, ret := dev.GetGpuFabricInfo()
		return joined(ret, info.State, info.Status, info.ClusterUuid, info.CliqueId)
	}
	return nil
}

func joined(ret gonvml.Return, state uint8, status uint32, cluster [16]uint8, clique uint32) *device.Fabric {
	if ret != gonvml.SUCCESS || state != gonvml.GPU_FABRIC_STATE_COMPLETED || gonvml.Return(status) != gonvml.SUCCESS {
		return nil
	}
	return &device.Fabric{
		ClusterUUID: fmt.Sprintf("%x-%x-%x-%x-%x", cluster[:4], cluster[4:6], cluster[6:8], cluster[8:10], cluster[10:]),
		CliqueID:    clique,
	}
}

func architecture(a gonvml.DeviceArchitecture) string {
	names := map[gonvml.DeviceArchitecture]string{
		gonvml.DEVICE_ARCH_KEPLER: "kepler", gonvml.DEVICE_ARCH_MAXWELL: "maxwell", gonvml.DEVICE_ARCH_PASCAL: "pascal",
		gonvml.DEVICE_ARCH_VOLTA: "volta", gonvml.DEVICE_ARCH_TURING: "turing", gonvml.DEVICE_ARCH_AMPERE: "ampere",
		gonvml.DEVICE_ARCH_ADA: "ada-lovelace", gonvml.DEVICE_ARCH_HOPPER: "hopper", gonvml.DEVICE_ARCH_BLACKWELL: "blackwell",
	}
	return names[a]
}

// cString reads a C string whose characters go-nvml gives as int8 or uint8.
func cString[T ~int8 | ~uint8](chars []T) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
