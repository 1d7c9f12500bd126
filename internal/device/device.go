// Package device says what a GPU and a MIG device are: plain values that the
// rest of the project passes around, without any I/O.
//
// Four numbers name a card and are never interchangeable: its UUID (what the
// kubelet and CDI names hold), its index (NVML enumeration order), its minor
// (the N of /dev/nvidiaN) and its PCI bus ID. Start at Inventory, which is
// what discovery returns and what the state directory's inventory.json holds.
package device

import (
	"slices"
	"strconv"
)

// DriverState is how far the NVIDIA driver of a node could be reached.
type DriverState string

// The states of a driver. Only DriverReady serves devices; DriverNoDevices is
// a healthy node without a GPU.
const (
	// DriverReady means that NVML answered and at least one GPU was listed.
	DriverReady DriverState = "ready"
	// DriverNoDevices means that the node has no NVIDIA GPU.
	DriverNoDevices DriverState = "no-devices"
	// DriverLibraryMissing means that libnvidia-ml.so.1 was not found.
	DriverLibraryMissing DriverState = "library-missing"
	// DriverNotLoaded means that the kernel module is not loaded
	// (NVML_ERROR_DRIVER_NOT_LOADED).
	DriverNotLoaded DriverState = "not-loaded"
	// DriverVersionMismatch means that the loaded kernel module and the
	// library are of different versions (NVML_ERROR_LIB_RM_VERSION_MISMATCH).
	DriverVersionMismatch DriverState = "version-mismatch"
	// DriverHung means that a call into the driver did not return in time.
	DriverHung DriverState = "hung"
	// DriverFailed is any other failure; the reason has the text.
	DriverFailed DriverState = "failed"
)

// Driver describes the driver of a node.
type Driver struct {
	State DriverState `json:"state"`
	// Reason says why State is not ready, and what to do; empty when ready.
	Reason string `json:"reason,omitempty"`
	// Version is the driver's version as the kernel module reports it
	// ("535.309.01"), from NVML or /proc/driver/nvidia/version.
	Version string `json:"version,omitempty"`
	// CUDAVersion is the newest CUDA version that the driver supports,
	// "major.minor".
	CUDAVersion string `json:"cudaVersion,omitempty"`
	// Absent says that there is no driver to give: the devices of a described
	// inventory have the nodes that it names, and nothing else goes in. It is for
	// tests of whatever is around a device plugin.
	Absent bool `json:"absent,omitempty"`
	// Deaf says why XIDs are not heard of at the moment; empty when they are, or
	// when no card reports any.
	Deaf string `json:"deaf,omitempty"`
}

// Inventory is one snapshot of a node's GPUs, sorted by index.
type Inventory struct {
	Driver Driver `json:"driver"`
	GPUs   []GPU  `json:"gpus"`
	// Links holds each pair of GPUs once, sorted by A and B.
	Links []Link `json:"links,omitempty"`
}

// Health is whether a device may be used, and if not, why.
type Health struct {
	Healthy bool `json:"healthy"`
	// Reason is a sentence for people; empty when healthy.
	Reason string `json:"reason,omitempty"`
}

// GPU is one physical card.
type GPU struct {
	// UUID is NVML's, "GPU-" and 36 characters.
	UUID string `json:"uuid"`
	// Index is the position in NVML's enumeration.
	Index int `json:"index"`
	// Minor is the N of /dev/nvidiaN.
	Minor int `json:"minor"`
	// Node, in a described inventory, is the path of its device node in place of
	// /dev/nvidia<Minor>.
	Node string `json:"node,omitempty"`
	// PCIBusID is lower case with a domain of at least four digits, as sysfs
	// names it: "0000:07:00.0".
	PCIBusID string `json:"pciBusID"`
	// Model is the product name ("NVIDIA A100-SXM4-40GB").
	Model string `json:"model"`
	// MemoryBytes is the total frame buffer in bytes.
	MemoryBytes uint64 `json:"memoryBytes"`
	// ComputeCapability is "major.minor", for example "8.0".
	ComputeCapability string `json:"computeCapability,omitempty"`
	// Architecture is the lower-case family name ("ampere").
	Architecture string `json:"architecture,omitempty"`
	// NUMANode is the node that the card hangs on, or -1 when unknown.
	NUMANode int `json:"numaNode"`
	// DRMNodes are base names below /dev/dri ("card1", "renderD128").
	DRMNodes []string `json:"drmNodes,omitempty"`
	// PCIClass is the class code as sysfs writes it ("0x030200"); empty when
	// unknown.
	PCIClass string `json:"pciClass,omitempty"`
	// Fabric is what the card belongs to, nil when it is on no NVLink fabric or
	// the driver does not say.
	Fabric *Fabric `json:"fabric,omitempty"`
	// VGPU is nil when the PCI configuration space could not be read so far.
	VGPU *VGPU `json:"vgpu,omitempty"`
	// MIGCapable is whether the card can be partitioned, nil when unknown.
	MIGCapable *bool `json:"migCapable,omitempty"`
	// MIGEnabled is the current MIG mode. A GPU in MIG mode is not served as a
	// whole card.
	MIGEnabled bool `json:"migEnabled,omitempty"`
	// MIGDevices are the MIG devices that exist now, sorted by index.
	MIGDevices []MIGDevice `json:"migDevices,omitempty"`
	// Events says whether the driver tells of this card's XIDs. Where it does
	// not, the card's counters are all there is.
	Events bool `json:"events,omitempty"`
	// ECCUncorrected counts the uncorrected memory errors since the card was
	// last reset.
	ECCUncorrected uint64 `json:"eccUncorrected,omitempty"`
	// Recovery is what the driver says that the card needs.
	Recovery Recovery `json:"recovery,omitempty"`
	Health   Health   `json:"health"`
}

// Recovery is NVML's recovery action of a card (nvmlDeviceGpuRecoveryAction_t),
// from R565 on.
type Recovery string

// The recovery actions. The empty one means that the driver does not say.
const (
	RecoveryNone   Recovery = "none"
	RecoveryReset  Recovery = "reset"
	RecoveryReboot Recovery = "reboot"
	// RecoveryDrain asks for peers to be drained; the card itself works.
	RecoveryDrain Recovery = "drain"
	// RecoveryDrainReset asks for a drain and then a reset.
	RecoveryDrainReset Recovery = "drain-and-reset"
)

// XID is one error that the driver reported of a card.
type XID struct {
	// GPU is the UUID of the card.
	GPU string `json:"gpu"`
	// Number is NVIDIA's, see the XID catalogue.
	Number uint64 `json:"number"`
	// GPUInstance and ComputeInstance narrow it down to MIG devices; -1 when it
	// concerns the whole card, or every compute instance of the GPU instance.
	GPUInstance     int `json:"gpuInstance"`
	ComputeInstance int `json:"computeInstance"`
}

// MIGDevice is one MIG device: a compute instance inside a GPU instance.
type MIGDevice struct {
	// UUID is "MIG-" and 36 characters, or "MIG-GPU-<uuid>/<gi>/<ci>" with
	// drivers before R470.
	UUID string `json:"uuid"`
	// Index is the MIG index within its GPU.
	Index int `json:"index"`
	// Profile is the name without the "MIG " prefix ("1g.5gb").
	Profile string `json:"profile"`
	// GPUInstance and ComputeInstance are NVML's instance IDs.
	GPUInstance     int `json:"gpuInstance"`
	ComputeInstance int `json:"computeInstance"`
	// GPUInstanceMinor and ComputeInstanceMinor are the N of
	// /dev/nvidia-caps/nvidia-capN, from /proc/driver/nvidia-caps/mig-minors;
	// -1 when unknown.
	GPUInstanceMinor     int    `json:"gpuInstanceMinor"`
	ComputeInstanceMinor int    `json:"computeInstanceMinor"`
	MemoryBytes          uint64 `json:"memoryBytes"`
	// Attributes are nil when the driver does not say.
	Attributes *MIGAttributes `json:"attributes,omitempty"`
	Health     Health         `json:"health"`
}

// MIGAttributes is what a MIG device has of its GPU: numbers of units.
type MIGAttributes struct {
	Multiprocessors int `json:"multiprocessors"`
	GPUSlices       int `json:"gpuSlices"`
	ComputeSlices   int `json:"computeSlices"`
	CopyEngines     int `json:"copyEngines"`
	Decoders        int `json:"decoders"`
	Encoders        int `json:"encoders"`
	JPEGEngines     int `json:"jpegEngines"`
	OFAEngines      int `json:"ofaEngines"`
}

// Fabric is the NVLink fabric that a GPU has joined.
type Fabric struct {
	// ClusterUUID is 36 characters, all zeros on a fabric of one node.
	ClusterUUID string `json:"clusterUUID"`
	CliqueID    uint32 `json:"cliqueID"`
}

// VGPU tells whether a GPU is one that a hypervisor made, and with which driver.
type VGPU struct {
	Present bool `json:"present"`
	// HostDriverVersion and HostDriverBranch are the hypervisor's ("535.161.05",
	// "r538_10"); empty when it does not say.
	HostDriverVersion string `json:"hostDriverVersion,omitempty"`
	HostDriverBranch  string `json:"hostDriverBranch,omitempty"`
}

// Link is how two GPUs reach each other.
type Link struct {
	// A and B are UUIDs with A < B.
	A string `json:"a"`
	B string `json:"b"`
	// NVLinks is the number of active NVLinks between the two, direct or
	// through an NVSwitch.
	NVLinks int `json:"nvlinks,omitempty"`
	// PCIe is the nearest common ancestor.
	PCIe PCIeLevel `json:"pcie,omitempty"`
}

// PCIeLevel is the nearest PCIe ancestor that two GPUs share, nearest first.
type PCIeLevel string

// The levels, named after nvmlGpuTopologyLevel_t.
const (
	PCIeSameBoard    PCIeLevel = "board"
	PCIeSingleSwitch PCIeLevel = "single-switch"
	PCIeMultiSwitch  PCIeLevel = "multi-switch"
	PCIeHostBridge   PCIeLevel = "host-bridge"
	PCIeSameNode     PCIeLevel = "numa-node"
	PCIeSystem       PCIeLevel = "system"
)

// Allocatable is one device that may be given to a container: a whole GPU, or
// a MIG device of a GPU in MIG mode.
type Allocatable struct {
	UUID   string
	GPU    *GPU
	MIG    *MIGDevice // nil for a whole GPU
	Health Health
}

// Index is NVML's, "0", or "0:1" for a MIG device.
func (a Allocatable) Index() string {
	if a.MIG == nil {
		return strconv.Itoa(a.GPU.Index)
	}
	return strconv.Itoa(a.GPU.Index) + ":" + strconv.Itoa(a.MIG.Index)
}

// Devices lists everything that has a name: every GPU, in MIG mode or not, and
// every MIG device. A MIG device is unhealthy when its GPU is.
func (inv *Inventory) Devices() []Allocatable {
	var out []Allocatable
	for i := range inv.GPUs {
		gpu := &inv.GPUs[i]
		out = append(out, Allocatable{UUID: gpu.UUID, GPU: gpu, Health: gpu.Health})
		if !gpu.MIGEnabled {
			continue
		}
		for j := range gpu.MIGDevices {
			mig := &gpu.MIGDevices[j]
			health := mig.Health
			if !gpu.Health.Healthy {
				health = gpu.Health
			}
			out = append(out, Allocatable{UUID: mig.UUID, GPU: gpu, MIG: mig, Health: health})
		}
	}
	return out
}

// Allocatables lists the devices that exclude each other: every GPU that is not
// in MIG mode, and every MIG device.
func (inv *Inventory) Allocatables() []Allocatable {
	return slices.DeleteFunc(inv.Devices(), func(a Allocatable) bool { return a.MIG == nil && a.GPU.MIGEnabled })
}

// Find returns the device with a UUID.
func (inv *Inventory) Find(uuid string) (Allocatable, bool) {
	all := inv.Devices()
	i := slices.IndexFunc(all, func(a Allocatable) bool { return a.UUID == uuid })
	if i < 0 {
		return Allocatable{}, false
	}
	return all[i], true
}
