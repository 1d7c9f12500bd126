package main

import (
	"context"
	"errors"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/conflicts"
	"github.com/nri-gpu/nri-gpu/internal/deviceplugin"
	"github.com/nri-gpu/nri-gpu/internal/dirwatch"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/flock"
	"github.com/nri-gpu/nri-gpu/internal/health"
	"github.com/nri-gpu/nri-gpu/internal/httpserve"
	"github.com/nri-gpu/nri-gpu/internal/mps"
	"github.com/nri-gpu/nri-gpu/internal/version"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// daemon is the device plugins of a node with what feeds them.
type daemon struct {
	cfg       settings
	log       logrus.FieldLogger
	lock      *flock.Lock
	plugins   *plugins
	publisher *publisher
	monitor   *health.Monitor
	config    *configuration
	api       *api
	sharer    *sharer
	web       *httpserve.Server
}

// run is the daemon, until ctx ends or a part of it cannot go on. What the node
// lacks is no reason to end: it is reported, and looked for again.
func run(ctx context.Context, cfg settings, log *logrus.Logger) error {
	lock, err := flock.Wait(ctx, cfg.State().Lock("gpu-device-plugin"), cfg.LockWait, log)
	if err != nil {
		return err
	}
	err = runLocked(ctx, cfg, lock, log)
	return errors.Join(err, lock.Release())
}

func runLocked(ctx context.Context, cfg settings, lock *flock.Lock, log *logrus.Logger) error {
	discoverer, stop, err := cfg.discoverer()
	if err != nil {
		return err
	}
	defer stop()
	metrics := newMetrics()
	d := &daemon{cfg: cfg, log: log, lock: lock}
	d.monitor = health.New(health.Config{Roots: cfg.Roots(), Data: cfg.Data(), Policy: cfg.xidPolicy(), Quiet: cfg.HealthQuiet, Log: log})
	if d.config, err = newConfiguration(&cfg, log); err != nil {
		return err
	}
	if d.api, err = newAPI(cfg, d.config, metrics.registry, log); err != nil {
		return err
	}
	if err := d.makePlugins(metrics); err != nil {
		return err
	}
	wake := dirwatch.NewWaker()
	d.sharer = newSharer(&d.cfg, wake.Wake, log)
	d.publisher = &publisher{
		cfg: cfg, discoverer: discoverer, monitor: d.monitor, config: d.config, api: d.api, offer: d.plugins.offer, metrics: metrics, log: log,
		sharer: d.sharer, wake: wake, now: look{NotReady: "the node's GPUs were not looked for yet"},
	}
	if d.web, err = httpserve.Listen(ctx, httpserve.Options{
		Address: cfg.ListenAddress, NotReady: d.notReady, Metrics: metrics.registry, State: d.state,
	}); err != nil {
		return err
	}
	log.WithFields(logrus.Fields{
		"version": version.String(), "resource": cfg.ResourceName, "injection": cfg.Injection, "listen": d.web.Addr(),
	}).Info("started")
	conflicts.Log(log, conflicts.Find(conflicts.Node{Host: cfg.HostRoot, KubeletDir: cfg.KubeletDir, CDIDir: cfg.CDIDir, Resource: cfg.ResourceName}))
	err = d.serve(ctx)
	log.Info("stopped")
	return err
}

// makePlugins prepares a plugin for each resource, and makes the usual one, so
// that a setting which serves no resource is an error at start.
func (d *daemon) makePlugins(m *metrics) error {
	var keys *cdi.Keyring
	if !d.cfg.runtimeInjects() {
		var err error
		if keys, err = cdi.LoadOrCreateKeyring(d.cfg.Data().Key()); err != nil {
			return err
		}
	}
	d.plugins = newPlugins(d.log, func(resource string) (*deviceplugin.Plugin, error) {
		cfg := deviceplugin.Config{Resource: resource, KubeletDir: d.cfg.KubeletDir, Metrics: m.registry, Log: d.log}
		if keys != nil {
			cfg.NRI = &deviceplugin.NRI{HealthSocket: d.cfg.State().HealthSocket(), CarrierFile: d.cfg.Data().Carrier(), Annotate: annotate(keys, resource)}
		}
		return deviceplugin.New(cfg)
	})
	_, err := d.plugins.add(d.cfg.ResourceName)
	return err
}

// annotate signs the names of one resource's devices for nri-gpu.
func annotate(keys *cdi.Keyring, resource string) deviceplugin.Annotate {
	return func(names []string) (key, value string, err error) {
		value, err = keys.Sign(cdi.Grant{Resource: resource, Names: names})
		return cdi.AnnotationKey(resource), value, err
	}
}

// serve runs every part and waits for all of them.
func (d *daemon) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	var failed error // written before parts.Wait returns
	parts.Go(func() {
		failed = d.web.Serve(ctx)
		cancel() // it is over for the other parts too
	})
	parts.Go(func() { d.publisher.run(ctx) })
	parts.Go(func() { d.plugins.run(ctx) })
	parts.Go(func() { d.sharer.run(ctx) })
	for _, part := range d.api.parts(d.config, d.publisher.wake.Wake, d.log) {
		parts.Go(func() { part(ctx) })
	}
	if !d.cfg.runtimeInjects() {
		parts.Go(func() { deviceplugin.KeepGuard(ctx, d.cfg.State().HealthSocket(), d.cfg.guardSpec(), d.log) })
	}
	var lost error
	parts.Go(func() {
		if lost = d.lock.Keep(ctx); lost != nil {
			cancel()
		}
	})
	parts.Wait()
	return errors.Join(failed, lost)
}

// notReady lists why a pod would not get a GPU of this node. A node without a
// GPU is ready.
func (d *daemon) notReady() []string {
	var out []string
	if why := d.publisher.last().NotReady; why != "" {
		out = append(out, why)
	}
	return append(out, d.plugins.notReady()...)
}

// debugState is what /debug/state shows.
type debugState struct {
	Version   string   `json:"version"`
	Ready     bool     `json:"ready"`
	Reasons   []string `json:"reasons,omitempty"`
	Injection string   `json:"injection"`
	Node      look     `json:"node"`
	// Plugins has one for each resource.
	Plugins       []deviceplugin.State `json:"plugins"`
	Health        health.State         `json:"health"`
	Configuration configurationState   `json:"configuration"`
	// Labels has one for each place that node labels are published in.
	Labels []features.PlaceState `json:"labels,omitempty"`
	// MPS has one for each resource that is shared by it.
	MPS []mps.Status `json:"mps,omitempty"`
}

func (d *daemon) state() any {
	reasons := d.notReady()
	return debugState{
		Version: version.String(), Ready: len(reasons) == 0, Reasons: reasons, Injection: d.cfg.Injection,
		Node: d.publisher.last(), Plugins: d.plugins.state(), Health: d.monitor.State(), Configuration: d.config.last(), Labels: d.api.state(), MPS: d.sharer.state(),
	}
}

// runtimeInjects tells whether the container runtime injects, from a spec of
// ours, and nri-gpu is not needed.
func (s *settings) runtimeInjects() bool { return s.Injection == config.InjectionCDI }
