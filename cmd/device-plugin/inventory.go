package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/dirwatch"
	"github.com/nri-gpu/nri-gpu/internal/discovery"
	"github.com/nri-gpu/nri-gpu/internal/health"
	"github.com/nri-gpu/nri-gpu/internal/hook"
	"github.com/nri-gpu/nri-gpu/internal/resources"
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
	monitor    *health.Monitor
	config     *configuration
	api        *api
	sharer     *sharer
	// offer advertises devices whose specs are on disk.
	offer   func(resources.Plan, device.Inventory)
	metrics *metrics
	log     logrus.FieldLogger
	wake    dirwatch.Waker
	// raw is the inventory of the last look, before anything was made of it, and
	// judged what was made of it.
	raw, judged device.Inventory

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
	// Nodes are the device nodes that are missing or lack their link, and could
	// not be made.
	Nodes []devnodes.Problem `json:"nodes,omitempty"`
	// published says whether the files say what was found.
	published bool
}

// run looks until ctx ends: now and then, when a file of the administrator's
// changes, and when the driver reports an error.
func (p *publisher) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watch := &dirwatch.Watch{Dirs: p.watched(), Poll: p.cfg.DiscoverInterval, Wake: p.wake.Wake, Log: p.log}
	watching.Go(func() { watch.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var found look
		select {
		case <-ctx.Done():
			return
		case x := <-p.discoverer.XIDs():
			action, changed := p.monitor.XID(x, &p.raw)
			p.metrics.xid(x, action)
			if !changed {
				continue
			}
			// What is known counts at once; a look at the card takes longer.
			found = p.pass(ctx, p.last())
			p.wake.Wake()
		case <-p.wake:
			found = p.look(ctx)
		case <-timer.C:
			found = p.look(ctx)
		}
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

// watched are the directories of files that an administrator edits. A file that
// is a link into a directory that is switched, as a ConfigMap's are, changes
// with its own directory.
func (p *publisher) watched() []string {
	dirs := []string{p.cfg.DataDir}
	for _, f := range []string{p.cfg.Inventory, p.cfg.ConfigFile} {
		if f != "" {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	if p.cfg.ConfigDir != "" {
		dirs = append(dirs, p.cfg.ConfigDir)
	}
	return dirs
}

// look takes one inventory all the way.
func (p *publisher) look(ctx context.Context) look {
	begin := time.Now()
	p.config.reload()
	inv := p.discoverer.Discover(ctx)
	found := look{Driver: inv.Driver}
	if ctx.Err() != nil {
		return found
	}
	if why := p.blind(&inv); why != "" {
		found.NotReady = why
		return found
	}
	p.raw = inv
	if inv.Driver.State == device.DriverReady && !inv.Driver.Absent {
		nodes := devnodes.Ensure(p.cfg.Roots(), inv)
		found.Nodes = nodes.Problems
		for _, n := range nodes.Created {
			p.log.WithField("node", n).Info("made a device node")
		}
	}
	found = p.pass(ctx, found)
	p.metrics.looked(time.Since(begin), inv.Driver.State == device.DriverReady, found.published)
	return found
}

// blind tells a driver that does not answer from a program that may not ask it:
// a device cgroup that was set anew takes the nodes away from us, and says
// nothing about the cards.
func (p *publisher) blind(inv *device.Inventory) string {
	sick := func(g device.GPU) bool { return !g.Health.Healthy }
	if p.cfg.Inventory != "" || inv.Driver.State == device.DriverNoDevices || inv.Driver.State == device.DriverReady && !slices.ContainsFunc(inv.GPUs, sick) {
		return ""
	}
	node := p.cfg.Roots().DevPath(devnodes.Control)
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	if err == nil {
		_ = f.Close() // nothing was written
		return ""
	}
	if !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	return fmt.Sprintf("this program has lost its own access to the driver (%v), and what was listed stays as it is; restart it, and see whether `systemctl daemon-reload` or a change of its cgroup took %s away", err, node)
}

// pass makes of the last inventory what follows from it, and passes it on.
func (p *publisher) pass(ctx context.Context, found look) look {
	found.NotReady = ""
	result, err := specgen.Generate(ctx, p.monitor.Apply(p.raw), p.cfg.specgen())
	cfg := p.config.load()
	var plan resources.Plan
	if err == nil {
		plan = resources.Make(&result.Inventory, &cfg)
		p.sharer.apply(&plan, result)
		plan = resources.Make(&result.Inventory, &cfg) // with what MPS does not serve
		// Before the first container can be given one of the nodes.
		for _, problem := range devnodes.Link(p.cfg.Roots(), result.Report.Present()) {
			if !slices.Contains(found.Nodes, problem) {
				found.Nodes = append(slices.Clip(found.Nodes), problem)
			}
		}
		err = p.publish(result)
	}
	found.published = err == nil
	switch driver := p.raw.Driver; {
	case err != nil:
		found.NotReady = fmt.Sprintf("what the node has could not be published, and the kubelet's list stays as it is: %v", err)
		return found
	case driver.State == device.DriverNoDevices:
	case driver.State != device.DriverReady:
		found.NotReady = fmt.Sprintf("the driver is %s: %s", driver.State, driver.Reason)
	case result.Report.Unserved != "":
		found.NotReady = "no GPU can be served: " + result.Report.Unserved
	}
	p.config.problems(plan.Problems)
	p.metrics.cards(result.Inventory)
	p.api.health(p.judged, result.Inventory)
	p.judged = result.Inventory
	p.offer(plan, result.Inventory)
	p.api.publish(result.Inventory)
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
		Kind: cdi.KindGPU, Capabilities: p.cfg.Capabilities(), Names: []specgen.Naming{specgen.ByUUID}, NoAll: true, MIGParents: true,
		HookMounts: p.cfg.DriverMounts == config.MountsByHook && hook.CanMount() == nil,
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
			p.log.WithField("node", n.Node).Warnf("device node is not as it should be: %s", n.Why)
		}
	}
	switch {
	case found.NotReady != "" && found.NotReady != before.NotReady:
		p.log.Warn(found.NotReady)
	case found.NotReady == "" && found.Driver != before.Driver:
		p.log.WithField("driver", found.Driver.Version).Infof("the driver is %s", found.Driver.State)
	}
	if found.Driver.Deaf != "" && found.Driver.Deaf != before.Driver.Deaf {
		p.log.Warnf("errors of cards are not heard of, and are looked for instead: %s", found.Driver.Deaf)
	}
}

// last is what the last look found.
func (p *publisher) last() look {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}
