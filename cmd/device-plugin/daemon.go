package main

import (
	"context"
	"errors"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/conflicts"
	"github.com/nri-gpu/nri-gpu/internal/deviceplugin"
	"github.com/nri-gpu/nri-gpu/internal/flock"
	"github.com/nri-gpu/nri-gpu/internal/httpserve"
	"github.com/nri-gpu/nri-gpu/internal/version"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// daemon is one device plugin with what feeds it.
type daemon struct {
	cfg       settings
	log       logrus.FieldLogger
	plugin    *deviceplugin.Plugin
	publisher *publisher
	web       *httpserve.Server
}

// run is the daemon, until ctx ends or a part of it cannot go on. What the node
// lacks is no reason to end: it is reported, and looked for again.
func run(ctx context.Context, cfg settings, log *logrus.Logger) error {
	release, err := flock.Acquire(cfg.State().Lock("gpu-device-plugin"))
	if err != nil {
		return err
	}
	err = runLocked(ctx, cfg, log)
	return errors.Join(err, release())
}

func runLocked(ctx context.Context, cfg settings, log *logrus.Logger) error {
	discoverer, stop, err := cfg.discoverer()
	if err != nil {
		return err
	}
	defer stop()
	metrics := newMetrics()
	d := &daemon{cfg: cfg, log: log, publisher: newPublisher(cfg, discoverer, metrics, log)}
	pluginConfig, err := d.pluginConfig(metrics)
	if err != nil {
		return err
	}
	if d.plugin, err = deviceplugin.New(pluginConfig); err != nil {
		return err
	}
	d.publisher.list = d.plugin.SetDevices
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

func (d *daemon) pluginConfig(m *metrics) (deviceplugin.Config, error) {
	out := deviceplugin.Config{
		Resource: d.cfg.ResourceName, KubeletDir: d.cfg.KubeletDir, Metrics: m.registry, Log: d.log,
	}
	if d.cfg.runtimeInjects() {
		return out, nil
	}
	keys, err := cdi.LoadOrCreateKeyring(d.cfg.Data().Key())
	if err != nil {
		return out, err
	}
	out.NRI = &deviceplugin.NRI{
		HealthSocket: d.cfg.State().HealthSocket(),
		GuardSpec:    d.cfg.guardSpec(),
		CarrierFile:  d.cfg.Data().Carrier(),
		Annotate:     annotate(keys, d.cfg.ResourceName),
	}
	return out, nil
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
	parts.Go(func() { d.plugin.Run(ctx) })
	parts.Wait()
	return failed
}

// notReady lists why a pod would not get a GPU of this node. A node without a
// GPU is ready.
func (d *daemon) notReady() []string {
	var out []string
	if why := d.publisher.last().NotReady; why != "" {
		out = append(out, why)
	}
	return append(out, d.plugin.NotReady()...)
}

// debugState is what /debug/state shows.
type debugState struct {
	Version   string             `json:"version"`
	Ready     bool               `json:"ready"`
	Reasons   []string           `json:"reasons,omitempty"`
	Injection string             `json:"injection"`
	Node      look               `json:"node"`
	Plugin    deviceplugin.State `json:"plugin"`
}

func (d *daemon) state() any {
	reasons := d.notReady()
	return debugState{
		Version: version.String(), Ready: len(reasons) == 0, Reasons: reasons, Injection: d.cfg.Injection,
		Node: d.publisher.last(), Plugin: d.plugin.State(),
	}
}

// runtimeInjects tells whether the container runtime injects, from a spec of
// ours, and nri-gpu is not needed.
func (s *settings) runtimeInjects() bool { return s.Injection == config.InjectionCDI }
