package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/conflicts"
	"github.com/nri-gpu/nri-gpu/internal/flock"
	"github.com/nri-gpu/nri-gpu/internal/hook"
	"github.com/nri-gpu/nri-gpu/internal/httpserve"
	"github.com/nri-gpu/nri-gpu/internal/recent"
	"github.com/nri-gpu/nri-gpu/internal/record"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

type daemon struct {
	cfg        settings
	log        logrus.FieldLogger
	lock       *flock.Lock
	node       *node
	injector   *inject.Injector
	records    *record.Writer
	metrics    *metrics
	health     *health.Server
	connection connection
	inflight   inflight
	recent     recent.List[decision]
	mu         sync.Mutex // serialises reconcile
}

// run is the daemon, until ctx ends. The guard is gone when it returns.
func run(ctx context.Context, cfg settings, log *logrus.Logger) error {
	if cfg.Injection == config.InjectionCDI {
		return fmt.Errorf("--injection=%s leaves injection to the runtime and needs no nri-gpu; stop and disable it on this node", config.InjectionCDI)
	}
	lock, err := flock.Wait(ctx, cfg.State().Lock("nri-gpu"), cfg.LockWait, log)
	if err != nil {
		return err
	}
	d := newDaemon(cfg, log)
	d.lock = lock
	return errors.Join(d.run(ctx), lock.Release())
}

func newDaemon(cfg settings, log logrus.FieldLogger) *daemon {
	d := &daemon{cfg: cfg, log: log, metrics: newMetrics(), health: health.NewServer(), records: record.New(cfg.State(), log)}
	mapping := cfg.Mapping()
	d.node = newNode(cfg.State(), cfg.Data(), mapping.FromHost)
	d.injector = &inject.Injector{
		Resolver: d.node.resolver, Health: d.node.healthOf, Devices: d.node.devices, Keys: d.node.keys, Local: mapping.FromHost,
		Policy: inject.Policy{
			Capabilities: cfg.Capabilities(), ExemptHandlers: cfg.ExemptHandlers, ExemptNamespaces: cfg.ExemptNamespaces,
			ManagementNamespaces: cfg.ManagementNamespaces, DenyUnallocated: cfg.Unallocated == deny,
		},
	}
	d.injector.HookMounts = d.mountsByHook()
	return d
}

func (d *daemon) mountsByHook() bool {
	if d.cfg.DriverMounts != config.MountsByHook {
		return false
	}
	err := hook.CanMount()
	if err != nil {
		d.log.WithError(err).Warn("the container runtime mounts the driver's files")
	}
	return err == nil
}

func (d *daemon) newPlugin(synced func()) *plugin {
	p := &plugin{
		injector: d.injector, records: d.records, metrics: d.metrics, log: d.log, configured: d.configure, synced: synced, inflight: &d.inflight, recent: &d.recent,
	}
	p.setDeadline(2 * time.Second) // until the runtime says its own
	return p
}

// run starts every part and waits for all of them.
func (d *daemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	web, err := httpserve.Listen(ctx, httpserve.Options{Address: d.cfg.ListenAddress, NotReady: d.notReady, Metrics: d.metrics.registry, State: d.state})
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, d.health)
	socket := &healthSocket{path: d.cfg.State().HealthSocket(), server: server, log: d.log}
	if err := socket.listen(ctx); err != nil {
		return err
	}
	d.removeGuard("at start") // of an instance that was killed
	d.setHealth(false)

	var parts sync.WaitGroup
	start := func(name string, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	records, stopRecords := context.WithCancel(context.WithoutCancel(ctx))
	var writing sync.WaitGroup
	writing.Go(func() { d.records.Run(records) })
	start("health socket", socket.run)
	start("lock", d.lock.Keep)
	start("health and metrics", web.Serve)
	start("state directory", func(ctx context.Context) error { return d.watch(ctx) })
	start("connection", func(ctx context.Context) error { d.connect(ctx); return nil })
	d.log.WithField("socket", d.cfg.NRISocket).Info("started")
	conflicts.Log(d.log, conflicts.Find(conflicts.Node{Host: d.cfg.HostRoot, CDIDir: d.cfg.CDIDir}))

	<-ctx.Done()
	d.setConnected(false)
	d.health.Shutdown()
	parts.Wait()
	stopRecords()
	writing.Wait()
	d.removeGuard("at the end")
	d.log.Info("stopped")
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// configure chooses how names travel and tells the device plugin.
func (d *daemon) configure(r cdi.Runtime) error {
	carrier, err := cdi.ChooseCarrier(r)
	d.connection.configured(r, carrier, err)
	if err != nil {
		// We stay connected, and refuse: a runtime as old as this would create
		// the container without its GPU.
		d.log.WithError(err).Error("this container runtime is not supported")
		return nil
	}
	if err := d.writeCarrier(); err != nil {
		return err
	}
	d.log.WithFields(logrus.Fields{"runtime": r.Name, "version": r.Version, "carrier": carrier}).Info("registered with the container runtime")
	return nil
}

// writeCarrier tells the device plugin how names travel, as long as a runtime
// has said who it is. A file that was lost or cut short is written again.
func (d *daemon) writeCarrier() error {
	d.connection.mu.Lock()
	runtime, carrier := d.connection.runtime, d.connection.carrier
	d.connection.mu.Unlock()
	if carrier == "" {
		return nil
	}
	data, err := cdi.EncodeCarrier(carrier, runtime)
	if err != nil {
		return err
	}
	if _, err := state.WriteFile(d.cfg.Data().Carrier(), data, 0o644); err != nil {
		return fmt.Errorf("tell the device plugin how names travel: %w", err)
	}
	return nil
}

func (d *daemon) setConnected(on bool) {
	if changed := d.connection.set(on); changed && on {
		d.metrics.sessions.Inc()
	}
	gauge(d.metrics.connected, on)
	d.reconcile()
}

// reconcile makes the guard and the health that others see follow what is so:
// the guard exists exactly while we are connected and can serve.
func (d *daemon) reconcile() {
	d.mu.Lock()
	defer d.mu.Unlock()
	serving := len(d.notReady()) == 0
	if err := d.writeCarrier(); err != nil {
		d.log.WithError(err).Error("the device plugin may not learn how names travel")
	}
	if serving {
		if err := d.writeGuard(); err != nil {
			d.log.WithError(err).Error("the guard spec could not be written; containers with GPUs are not created until it can")
			serving = false
		}
	}
	d.setHealth(serving)
	if !serving {
		d.removeGuard("not ready")
	}
	gauge(d.metrics.ready, serving)
}

func (d *daemon) setHealth(serving bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthpb.HealthCheckResponse_SERVING
	}
	d.health.SetServingStatus("", status)
	d.health.SetServingStatus(pluginName, status)
}

func (d *daemon) guardPath() string {
	return filepath.Join(d.cfg.CDIDir, cdi.SpecFileName(cdi.KindGPU))
}

func (d *daemon) writeGuard() error {
	spec := cdi.GuardSpec(d.node.view.Load().devices())
	if spec == nil {
		d.removeGuard("the node has no GPU")
		return nil
	}
	data, err := cdi.EncodeSpec(spec, cdi.JSON, "")
	if err != nil {
		return err
	}
	_, err = state.WriteFile(d.guardPath(), data, 0o644)
	return err
}

func (d *daemon) removeGuard(why string) {
	switch err := os.Remove(d.guardPath()); {
	case err == nil:
		d.log.WithField("spec", d.guardPath()).Infof("removed the guard spec: %s", why)
	case !os.IsNotExist(err):
		d.log.WithError(err).Error("the guard spec could not be removed; a container may then fail at start and not at creation")
	}
}
