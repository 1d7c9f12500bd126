package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// node is what nri-gpu knows of the node: specs, health, keys. Handlers read it
// without a lock and without a file.
type node struct {
	dir      state.Dir
	keyFile  string
	resolver *cdi.Resolver
	view     atomic.Pointer[view]
}

// view is one consistent reading of the state directory.
type view struct {
	// unready says why nothing can be injected, or is empty.
	unready string
	// health maps a device's CDI name to why it may not be used, "" when it may.
	health map[string]string
	keys   *cdi.Keyring
	driver device.Driver
}

func newNode(dir state.Dir, data state.DataDir, local func(string) string) *node {
	n := &node{dir: dir, keyFile: data.Key(), resolver: cdi.NewResolver(dir.SpecDir(), local)}
	n.view.Store(&view{unready: "the state directory was not read yet"})
	return n
}

// reload reads everything anew. What cannot be read is the view's reason; specs
// that were good before stay in use.
func (n *node) reload() {
	v := &view{health: map[string]string{}}
	if old := n.view.Load(); old != nil {
		v.keys = old.keys
	}
	if keys, err := cdi.ReadKeyring(n.keyFile); err == nil {
		v.keys = keys
	}
	if err := n.readInventory(v); err != nil {
		v.unready = err.Error()
	}
	if v.unready != "" {
		// The reason first: a container that comes between the two is refused for
		// the reason that the driver has, and not because its spec is gone.
		n.view.Store(v)
	}
	if err := n.loadSpecs(v.driver.State); err != nil && v.unready == "" {
		v.unready = err.Error()
	}
	// A view without a reason is seen only when its specs are there.
	n.view.Store(v)
}

func (n *node) readInventory(v *view) error {
	data, err := os.ReadFile(n.dir.Inventory())
	if err != nil {
		return fmt.Errorf("the device plugin has written no inventory yet (%w); start it, or see its log", err)
	}
	var inv device.Inventory
	if err := json.Unmarshal(data, &inv); err != nil {
		return fmt.Errorf("inventory %q: %w; restart the device plugin, which writes it", n.dir.Inventory(), err)
	}
	v.driver = inv.Driver
	for _, a := range inv.Devices() {
		v.health[cdi.DeviceName(a.UUID)] = reasonOf(a.Health)
	}
	if inv.Driver.State != device.DriverReady && inv.Driver.State != device.DriverNoDevices {
		return fmt.Errorf("the driver is %s: %s", inv.Driver.State, inv.Driver.Reason)
	}
	return nil
}

func (n *node) loadSpecs(driver device.DriverState) error {
	if err := n.resolver.Load(); err != nil {
		return err
	}
	if driver == device.DriverReady && !n.resolver.Serves() {
		return fmt.Errorf("there is no spec of the driver in %q; see the device plugin's log and report.json", n.dir.SpecDir())
	}
	return nil
}

func reasonOf(h device.Health) string {
	if h.Healthy {
		return ""
	}
	if h.Reason == "" {
		return "the device plugin gives no reason"
	}
	return h.Reason
}

// healthOf is inject.Injector's.
func (n *node) healthOf(name string) string {
	why, known := n.view.Load().health[name]
	if !known {
		return "it is not in the node's inventory; the card may have left the node"
	}
	return why
}

// devices is inject.Injector's.
func (n *node) devices() []string { return n.view.Load().devices() }

func (n *node) keys() *cdi.Keyring { return n.view.Load().keys }

// devices lists what the guard must name: every device of the inventory, the
// unhealthy ones too, since nri-gpu refuses those with a better reason than a
// runtime that cannot resolve them.
func (v *view) devices() []string {
	out := make([]string, 0, len(v.health))
	for name := range v.health {
		out = append(out, name)
	}
	return out
}
