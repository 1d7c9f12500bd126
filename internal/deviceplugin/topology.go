package deviceplugin

import (
	"github.com/nri-gpu/nri-gpu/internal/device"
)

// How near two devices are, in points. One NVLink outweighs any PCIe distance,
// and two replicas of one card are the last thing that a container wants.
const (
	pointsNVLink  = 100
	pointsReplica = -1_000_000
	// Two MIG devices of one card are as near as two chips of one board.
	pointsSameCard = 60
)

// topology has the points of each pair of devices of an inventory.
type topology struct {
	// card is the UUID of the GPU that a device is, or is a part of.
	card map[string]string
	// points are those of a pair of GPUs, the lesser UUID first.
	points map[[2]string]int
}

func newTopology(inv device.Inventory) *topology {
	t := &topology{card: map[string]string{}, points: map[[2]string]int{}}
	for _, a := range inv.Devices() {
		t.card[a.UUID] = a.GPU.UUID
	}
	for _, l := range inv.Links {
		t.points[pair(l.A, l.B)] = l.NVLinks*pointsNVLink + pciePoints(l.PCIe)
	}
	return t
}

// between returns the points of two devices; 0 when nothing is known of them.
func (t *topology) between(a, b string) int {
	if a == b {
		return pointsReplica
	}
	cardA, knownA := t.card[a]
	cardB, knownB := t.card[b]
	switch {
	case !knownA || !knownB:
		return 0
	case cardA == cardB:
		return pointsSameCard
	default:
		return t.points[pair(cardA, cardB)]
	}
}

func pair(a, b string) [2]string {
	if b < a {
		a, b = b, a
	}
	return [2]string{a, b}
}

func pciePoints(level device.PCIeLevel) int {
	switch level {
	case device.PCIeSameBoard:
		return 60
	case device.PCIeSingleSwitch:
		return 50
	case device.PCIeMultiSwitch:
		return 40
	case device.PCIeHostBridge:
		return 30
	case device.PCIeSameNode:
		return 20
	case device.PCIeSystem:
		return 10
	}
	return 0
}
