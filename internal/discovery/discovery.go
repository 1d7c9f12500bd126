// Package discovery finds out which GPUs a node has.
//
// Two implementations exist: nvml, for a node with the NVIDIA driver, and
// static, from a file. What needs no driver (procfs, sysfs) is in hostfs.
package discovery

import (
	"context"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// Discoverer takes a snapshot of a node's GPUs. It returns no error: whatever
// goes wrong is a state with its reason within the inventory, so that one
// faulty card or an absent driver is something to report and not to die of.
type Discoverer interface {
	Discover(ctx context.Context) device.Inventory
	// XIDs tells of the errors that the driver reports between two snapshots;
	// nil where nobody reports any.
	XIDs() <-chan device.XID
}
