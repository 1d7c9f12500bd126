package nvml

import (
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
