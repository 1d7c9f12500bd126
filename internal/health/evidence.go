package health

import (
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Evidence is what tells whether a card was reset since. Each part changes when
// something happens that begins the card's life anew; an empty part is unknown
// and proves nothing.
type Evidence struct {
	// Boot is the kernel's boot ID.
	Boot string `json:"boot,omitempty"`
	// Driver identifies the loaded kernel module: another after a reload.
	Driver string `json:"driver,omitempty"`
	// Bus identifies the PCI device: another after it was removed and found again.
	Bus string `json:"bus,omitempty"`
	// Recovery is the driver's recovery action.
	Recovery device.Recovery `json:"recovery,omitempty"`
}

// look gathers the evidence of one card.
func look(r roots.Roots, gpu *device.GPU) Evidence {
	return Evidence{
		Boot: hostfs.BootID(r), Driver: hostfs.Instance(r.Sys("module", "nvidia")),
		Bus: hostfs.Instance(r.Sys("bus", "pci", "devices", gpu.PCIBusID)), Recovery: gpu.Recovery,
	}
}

// resetSince tells whether the card's life began anew after e, and how that was
// seen.
func (e Evidence) resetSince(now Evidence) (how string) {
	switch {
	case differ(e.Boot, now.Boot):
		return "the node was rebooted"
	case differ(e.Driver, now.Driver):
		return "the driver was loaded anew"
	case differ(e.Bus, now.Bus):
		return "the card was found on the PCI bus anew"
	case asksForReset(e.Recovery) && now.Recovery == device.RecoveryNone:
		return "the driver asks for no recovery any more"
	}
	return ""
}

// rebootSince is resetSince for what only a reboot clears.
func (e Evidence) rebootSince(now Evidence) string {
	if differ(e.Boot, now.Boot) {
		return "the node was rebooted"
	}
	return ""
}

func differ(a, b string) bool { return a != "" && b != "" && a != b }

func asksForReset(r device.Recovery) bool {
	return r == device.RecoveryReset || r == device.RecoveryDrainReset || r == device.RecoveryReboot
}
