package nvml

import (
	"encoding/binary"
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// condition reads what says whether a card can be used. A card that does not
// know a question is asked nothing by it.
func (w *worker) condition(dev gonvml.Device, gpu *device.GPU) {
	w.recovery(dev, gpu)
	w.memoryErrors(dev, gpu)
	w.fabric(dev, gpu)
}

// recovery asks what the driver itself thinks that the card needs.
func (w *worker) recovery(dev gonvml.Device, gpu *device.GPU) {
	if !w.has("nvmlDeviceGetFieldValues") {
		return
	}
	values := []gonvml.FieldValue{{FieldId: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := dev.GetFieldValues(values); ret != gonvml.SUCCESS || values[0].NvmlReturn != uint32(gonvml.SUCCESS) {
		return
	}
	gpu.Recovery = recoveryAction(binary.NativeEndian.Uint32(values[0].Value[:]))
	switch gpu.Recovery {
	case device.RecoveryReset, device.RecoveryDrainReset:
		sick(gpu, "the driver asks for a reset of the card; drain it and run `nvidia-smi --gpu-reset`")
	case device.RecoveryReboot:
		sick(gpu, "the driver asks for a reboot of the node")
	case device.RecoveryNone, device.RecoveryDrain:
	}
}

// recoveryAction translates nvmlDeviceGpuRecoveryAction_t.
func recoveryAction(n uint32) device.Recovery {
	switch n {
	case 0:
		return device.RecoveryNone
	case 2, 7: // node reboot, system reboot
		return device.RecoveryReboot
	case 3, 5: // drain P2P, recover IMEX domain
		return device.RecoveryDrain
	case 4:
		return device.RecoveryDrainReset
	default: // GPU reset, bus reset, and what is not known yet
		return device.RecoveryReset
	}
}

func (w *worker) memoryErrors(dev gonvml.Device, gpu *device.GPU) {
	if w.has("nvmlDeviceGetTotalEccErrors") {
		if n, ret := dev.GetTotalEccErrors(gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC); ret == gonvml.SUCCESS {
			gpu.ECCUncorrected = n
		}
	}
	if !w.has("nvmlDeviceGetRemappedRows") {
		return
	}
	if _, _, _, failed, ret := dev.GetRemappedRows(); ret == gonvml.SUCCESS && failed {
		sick(gpu, "a row of its memory could not be remapped; replace the card (NVIDIA's RMA criterion)")
	}
}

// fabric reads the registration with the NVLink fabric, without which CUDA does
// not start (error 802).
func (w *worker) fabric(dev gonvml.Device, gpu *device.GPU) {
	switch {
	case w.has("nvmlDeviceGetGpuFabricInfoV"):
		info, ret := dev.GetGpuFabricInfoV().V2()
		join(gpu, ret, info.State, info.Status, info.ClusterUuid, info.CliqueId)
	case w.has("nvmlDeviceGetGpuFabricInfo"): // older drivers
		info, ret := dev.GetGpuFabricInfo()
		join(gpu, ret, info.State, info.Status, info.ClusterUuid, info.CliqueId)
	}
}

// join notes the fabric that a card has joined: while its registration goes on,
// the identity may still change.
func join(gpu *device.GPU, ret gonvml.Return, state uint8, status uint32, cluster [16]uint8, clique uint32) {
	switch {
	case ret != gonvml.SUCCESS:
	case state == gonvml.GPU_FABRIC_STATE_NOT_STARTED || state == gonvml.GPU_FABRIC_STATE_IN_PROGRESS:
		sick(gpu, "it is not registered with the NVLink fabric yet; start nvidia-fabricmanager, or see its log")
	case state != gonvml.GPU_FABRIC_STATE_COMPLETED:
	case gonvml.Return(status) != gonvml.SUCCESS:
		sick(gpu, fmt.Sprintf("its registration with the NVLink fabric failed: %v; see the log of nvidia-fabricmanager", gonvml.Return(status)))
	default:
		gpu.Fabric = &device.Fabric{
			ClusterUUID: fmt.Sprintf("%x-%x-%x-%x-%x", cluster[:4], cluster[4:6], cluster[6:8], cluster[8:10], cluster[10:]), CliqueID: clique,
		}
	}
}

// sick keeps the first reason.
func sick(gpu *device.GPU, why string) {
	if gpu.Health.Healthy {
		gpu.Health = device.Health{Reason: why}
	}
}
