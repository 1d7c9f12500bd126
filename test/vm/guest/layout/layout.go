// Package layout says where what the virtual machine is given lies: below
// Payload, on its second disk.
package layout

// Payload is where the second disk is mounted.
const Payload = "/payload"

// Paths below Payload.
const (
	Tests    = "guest.test"
	Checkout = "nri-gpu"
	Tools    = "tools"
	Images   = "images"
	Module   = "driver/nvidia.ko"
	NVML     = "driver/libnvidia-ml.so.1"
	Machine  = "driver/machine.json"
)

// Image is the image that has the probe.
const Image = "nri-gpu.test/probe:1"
