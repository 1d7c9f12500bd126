// Package static reads the inventory from a JSON file, for tests, simulations
// and nodes whose cards are described by hand. The file is read at every
// Discover, so an edit takes effect at the next one.
package static

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery"
)

// Discoverer reads one file.
type Discoverer struct{ path string }

var _ discovery.Discoverer = (*Discoverer)(nil)

// New returns a Discoverer for a file that holds a device.Inventory.
func New(path string) *Discoverer { return &Discoverer{path: path} }

// Discover reads the file; a fault in it is the driver's state.
func (d *Discoverer) Discover(context.Context) device.Inventory {
	data, err := os.ReadFile(d.path)
	if err == nil {
		var inv device.Inventory
		if inv, err = Decode(data); err == nil {
			return inv
		}
	}
	return device.Inventory{Driver: device.Driver{
		State:  device.DriverFailed,
		Reason: fmt.Sprintf("inventory file %q: %v; correct the file", d.path, err),
	}}
}

// XIDs is nil: a file reports no errors.
func (d *Discoverer) XIDs() <-chan device.XID { return nil }

// Decode reads an inventory strictly: unknown fields, missing or repeated
// UUIDs and trailing data are errors.
func Decode(data []byte) (device.Inventory, error) {
	var inv device.Inventory
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&inv); err != nil {
		return device.Inventory{}, fmt.Errorf("decode inventory: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return device.Inventory{}, errors.New("decode inventory: more follows the first value")
	}
	return inv, check(inv)
}

func check(inv device.Inventory) error {
	var seen []string
	for i := range inv.GPUs {
		uuids := []string{inv.GPUs[i].UUID}
		for _, m := range inv.GPUs[i].MIGDevices {
			uuids = append(uuids, m.UUID)
		}
		for _, uuid := range uuids {
			if uuid == "" {
				return fmt.Errorf("GPU number %d of the file, or a MIG device of it, has no uuid", i)
			}
			if slices.Contains(seen, uuid) {
				return fmt.Errorf("uuid %q occurs twice", uuid)
			}
			seen = append(seen, uuid)
		}
	}
	return nil
}
