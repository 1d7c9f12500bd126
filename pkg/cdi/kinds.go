package cdi

import (
	"fmt"
	"slices"
	"strings"
)

// Vendor is the CDI vendor and the domain of annotations.
const Vendor = "nri-gpu.io"

// The kinds of the private specs.
const (
	// KindGPU has a device for each GPU and MIG device, named by UUID.
	KindGPU = Vendor + "/gpu"
	// KindDriver has a device for each Capability, and DriverControl.
	KindDriver = Vendor + "/driver"
	// The extra kinds have one device, DeviceAll.
	KindGDS      = Vendor + "/gds"
	KindGDRCopy  = Vendor + "/gdrcopy"
	KindMOFED    = Vendor + "/mofed"
	KindNVSwitch = Vendor + "/nvswitch"
	// KindIMEX has one device for each channel, named by its number.
	KindIMEX = Vendor + "/imex-channel"
)

// DriverControl is the device of KindDriver that every container with a GPU
// gets: the control nodes.
const DriverControl = "control"

// DeviceAll is the device that stands for all devices of a kind.
const DeviceAll = "all"

// SpecFileName is the name of a kind's file within a spec directory:
// "nri-gpu.io-gpu.json".
func SpecFileName(kind string) string { return strings.ReplaceAll(kind, "/", "-") + ".json" }

// DeviceName is the CDI device name of a GPU or MIG device: its UUID with the
// "/" of old MIG UUIDs replaced, since CDI does not allow it.
func DeviceName(uuid string) string { return strings.ReplaceAll(uuid, "/", "_") }

// Capability is a driver capability, in the words of
// NVIDIA_DRIVER_CAPABILITIES.
type Capability string

// The capabilities, in the order in which they are listed and joined.
const (
	Compute  Capability = "compute"
	Utility  Capability = "utility"
	Video    Capability = "video"
	Graphics Capability = "graphics"
	Display  Capability = "display"
	NGX      Capability = "ngx"
	Compat32 Capability = "compat32"
)

// AllCapabilities returns every capability in its order.
func AllCapabilities() []Capability {
	return []Capability{Compute, Utility, Video, Graphics, Display, NGX, Compat32}
}

// DefaultCapabilities is what a container gets that asks for none.
func DefaultCapabilities() []Capability { return []Capability{Compute, Utility} }

// ParseCapabilities reads a comma-separated list as NVIDIA_DRIVER_CAPABILITIES
// has it: blanks are ignored, "all" stands for every one, and an unknown word
// is an error that names it. The result is in order, each once.
func ParseCapabilities(list string) ([]Capability, error) {
	var out []Capability
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		switch {
		case word == "":
		case word == DeviceAll:
			out = append(out, AllCapabilities()...)
		case slices.Contains(AllCapabilities(), Capability(word)):
			out = append(out, Capability(word))
		default:
			return nil, fmt.Errorf("unknown driver capability %q: use some of %v, or %q", word, AllCapabilities(), DeviceAll)
		}
	}
	return sortCapabilities(out), nil
}

func sortCapabilities(caps []Capability) []Capability {
	order := AllCapabilities()
	slices.SortFunc(caps, func(a, b Capability) int { return slices.Index(order, a) - slices.Index(order, b) })
	return slices.Compact(caps)
}
