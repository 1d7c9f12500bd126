package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/discovery"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// publisher looks at the node again and again, and passes what it finds on: to
// the state directory first, and to the kubelet after, since a pod may be
// admitted as soon as a device is listed.
type publisher struct {
	cfg        settings
	discoverer discovery.Discoverer
	// list advertises an inventory whose specs are on disk.
	list    func(device.Inventory)
	metrics *metrics
	log     logrus.FieldLogger

	mu  sync.Mutex
	now look
}

// look is what one look at the node found.
type look struct {
	// NotReady says why no GPU can be served; empty when one can, and on a node
	// without any.
	NotReady string `json:"notReady,omitempty"`
	// Driver is how far the driver could be reached.
	Driver device.Driver `json:"driver"`
	// Nodes are the device nodes that are missing and could not be made.
	Nodes []devnodes.Problem `json:"nodes,omitempty"`
}

func newPublisher(cfg settings, d discovery.Discoverer, m *metrics, log logrus.FieldLogger) *publisher {
	return &publisher{
		cfg: cfg, discoverer: d, metrics: m, log: log,
		now: look{NotReady: "the node's GPUs were not looked for yet"},
	}
}

// run looks until ctx ends.
func (p *publisher) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found := p.look(ctx)
		if ctx.Err() != nil {
			return // what was found while everything ends is not the node's state
		}
		p.remember(found)
		if found.NotReady == "" {
			timer.Reset(p.cfg.DiscoverInterval)
		} else {
			timer.Reset(min(p.cfg.RetryInterval, p.cfg.DiscoverInterval))
		}
	}
}

// look takes one inventory all the way.
func (p *publisher) look(ctx context.Context) look {
	begin := time.Now()
	inv := p.discoverer.Discover(ctx)
	found := look{Driver: inv.Driver}
	if ctx.Err() != nil {
		return found
	}
	if inv.Driver.State == device.DriverReady {
		nodes := devnodes.Ensure(p.cfg.Roots(), inv)
		found.Nodes = nodes.Problems
		for _, n := range nodes.Created {
			p.log.WithField("node", n).Info("made a device node")
		}
	}
	result, err := specgen.Generate(ctx, inv, p.cfg.specgen())
	if err == nil {
		err = p.publish(result)
	}
	p.metrics.looked(time.Since(begin), inv.Driver.State == device.DriverReady, err)
	switch {
	case err != nil:
		found.NotReady = fmt.Sprintf("what the node has could not be published, and the kubelet's list stays as it is: %v", err)
		return found
	case inv.Driver.State == device.DriverNoDevices:
	case inv.Driver.State != device.DriverReady:
		found.NotReady = fmt.Sprintf("the driver is %s: %s", inv.Driver.State, inv.Driver.Reason)
	case result.Report.Unserved != "":
		found.NotReady = "no GPU can be served: " + result.Report.Unserved
	}
	p.list(result.Inventory)
	return found
}

// publish writes the files.
func (p *publisher) publish(result *specgen.Result) error {
	changed, err := result.Publish(p.cfg.State())
	if err != nil {
		return err
	}
	if changed {
		p.log.WithField("spec", p.cfg.State().SpecDir()).Info("published the node's inventory and specs")
	}
	if p.cfg.runtimeInjects() {
		return p.publishFlattened(result)
	}
	return nil
}

// publishFlattened writes, in the guard's place, the spec from which a runtime
// injects by itself. Without a GPU to serve there is none, and a container
// that was allocated one fails by name and is tried again.
func (p *publisher) publishFlattened(result *specgen.Result) error {
	path := p.cfg.guardSpec()
	spec, err := result.Flatten(specgen.Flattening{
		Kind: cdi.KindGPU, Capabilities: p.cfg.Capabilities(), Names: []specgen.Naming{specgen.ByUUID}, NoAll: true,
	})
	if err != nil {
		p.log.WithError(err).Debug("no spec for the runtime")
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := cdi.EncodeSpec(spec, cdi.JSON, "")
	if err != nil {
		return err
	}
	changed, err := state.WriteFile(path, data, 0o644)
	if changed {
		p.log.WithField("spec", path).Info("wrote the spec from which the runtime injects")
	}
	return err
}

// remember keeps what was found, and logs what is new about it.
func (p *publisher) remember(found look) {
	p.mu.Lock()
	before := p.now
	p.now = found
	p.mu.Unlock()
	for _, n := range found.Nodes {
		if !slices.Contains(before.Nodes, n) {
			p.log.WithField("node", n.Node).Warnf("device node is missing: %s", n.Why)
		}
	}
	switch {
	case found.NotReady != "" && found.NotReady != before.NotReady:
		p.log.Warn(found.NotReady)
	case found.NotReady == "" && found.Driver != before.Driver:
		p.log.WithField("driver", found.Driver.Version).Infof("the driver is %s", found.Driver.State)
	}
}

// last is what the last look found.
func (p *publisher) last() look {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}
