package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/version"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// connection is the state of the connection to the runtime.
type connection struct {
	mu          sync.Mutex
	connected   bool
	since       time.Time
	lastError   error
	runtime     cdi.Runtime
	carrier     cdi.Carrier
	unsupported error
}

func (c *connection) set(on bool) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = c.connected != on
	if changed {
		c.connected, c.since = on, time.Now()
	}
	if on {
		c.lastError = nil
	}
	return changed
}

func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastError = err
}

func (c *connection) configured(r cdi.Runtime, carrier cdi.Carrier, unsupported error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runtime, c.carrier, c.unsupported = r, carrier, unsupported
}

// reason says why we are not connected, or nothing.
func (c *connection) reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.connected && c.unsupported != nil:
		return c.unsupported.Error()
	case c.connected:
		return ""
	case c.lastError != nil:
		return fmt.Sprintf("not connected to the container runtime: %v", c.lastError)
	}
	return "not connected to the container runtime yet"
}

// notReady lists why no container can be given a GPU.
func (d *daemon) notReady() []string {
	var out []string
	if why := d.connection.reason(); why != "" {
		out = append(out, why)
	}
	if why := d.node.view.Load().unready; why != "" {
		out = append(out, why)
	}
	if oldest := d.inflight.oldest(time.Now()); oldest > 2*defaultDeadline {
		out = append(out, fmt.Sprintf("a request has been going on for %s", oldest.Round(time.Millisecond)))
	}
	return out
}

// debugState is what /debug/state shows.
type debugState struct {
	Version   string        `json:"version"`
	Ready     bool          `json:"ready"`
	Reasons   []string      `json:"reasons,omitempty"`
	Connected bool          `json:"connected"`
	Since     time.Time     `json:"since,omitzero"`
	Runtime   cdi.Runtime   `json:"runtime"`
	Carrier   cdi.Carrier   `json:"carrier,omitempty"`
	Driver    device.Driver `json:"driver"`
	// Devices maps each to why it may not be used; empty when it may.
	Devices map[string]string `json:"devices"`
	// Recent are the last decisions that changed something.
	Recent []decision `json:"recent"`
}

func (d *daemon) state() any {
	reasons, v := d.notReady(), d.node.view.Load()
	d.connection.mu.Lock()
	defer d.connection.mu.Unlock()
	return debugState{
		Version: version.String(), Ready: len(reasons) == 0, Reasons: reasons, Connected: d.connection.connected, Since: d.connection.since,
		Runtime: d.connection.runtime, Carrier: d.connection.carrier, Driver: v.driver, Devices: v.health, Recent: d.recent.All(),
	}
}
