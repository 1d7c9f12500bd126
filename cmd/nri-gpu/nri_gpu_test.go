package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/flock"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakenri"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a node: its files, a running nri-gpu, and a place for a runtime.
type bench struct {
	t     *testing.T
	dir   string // short: it holds sockets
	cfg   settings
	roots roots.Roots
	inv   device.Inventory
	stop  func() error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	// t.TempDir is too long for a socket's path.
	dir, err := os.MkdirTemp("", "nri") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	hook := filepath.Join(dir, "gpu-hook")
	require.NoError(t, os.WriteFile(hook, []byte("#!/bin/sh\n"), 0o755))
	b := &bench{t: t, dir: dir, roots: roots.Roots{Dev: filepath.Join(dir, "d"), Host: filepath.Join(dir, "h")}}
	b.cfg = settings{PluginIndex: "40", Daemon: config.Daemon{
		Paths:     config.Paths{StateDir: filepath.Join(dir, "s"), DataDir: filepath.Join(dir, "l"), CDIDir: filepath.Join(dir, "cdi"), HookPath: hook, HostRoot: filepath.Join(dir, "h")},
		NRISocket: fakenri.Socket(dir), Injection: config.InjectionNRI, DriverMounts: config.MountsByHook, AllowedCapabilities: []string{cdi.DeviceAll},
	}}
	b.inv = device.Inventory{
		Driver: device.Driver{State: device.DriverReady, Version: fakehost.DriverVersion},
		GPUs: []device.GPU{
			{UUID: "GPU-0", Minor: 0, PCIBusID: "0000:07:00.0", Health: device.Health{Healthy: true}},
			{UUID: "GPU-1", Minor: 1, PCIBusID: "0000:0f:00.0", Health: device.Health{Reason: "it was lost"}},
		},
	}
	require.NoError(t, fakeroot.Make(b.roots.Host, fakeroot.Options{Layout: "ubuntu", Version: fakehost.DriverVersion}))
	require.NoError(t, fakehost.Make(b.roots, b.inv))
	return b
}

// publish does what the device plugin does.
func (b *bench) publish() {
	b.t.Helper()
	res, err := specgen.Generate(b.t.Context(), b.inv, specgen.Config{Roots: b.roots, HookPath: b.cfg.HookPath})
	require.NoError(b.t, err)
	_, err = res.Publish(b.cfg.State())
	require.NoError(b.t, err)
	_, err = cdi.LoadOrCreateKeyring(b.cfg.Data().Key())
	require.NoError(b.t, err)
}

func (b *bench) start() {
	b.t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, b.cfg, log) }()
	stopped := false
	b.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	b.t.Cleanup(func() { _ = b.stop() })
}

func (b *bench) runtime(version string, containers ...*api.Container) *fakenri.Runtime {
	b.t.Helper()
	r, err := fakenri.Start(fakenri.Options{Dir: b.dir, Name: "containerd", Version: version, Pods: []*api.PodSandbox{pod()}, Containers: containers})
	require.NoError(b.t, err)
	return r
}

// serving waits until nri-gpu's health is as wanted; the guard is then too.
func (b *bench) serving(want bool) {
	b.t.Helper()
	conn, err := grpc.NewClient("unix:"+b.cfg.State().HealthSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b.t, err)
	defer conn.Close()
	require.Eventually(b.t, func() bool {
		resp, err := healthpb.NewHealthClient(conn).Check(b.t.Context(), &healthpb.HealthCheckRequest{})
		return err == nil && (resp.GetStatus() == healthpb.HealthCheckResponse_SERVING) == want
	}, 20*time.Second, 10*time.Millisecond, "serving: %v", want)
}

func (b *bench) guard() bool {
	_, err := os.Stat(filepath.Join(b.cfg.CDIDir, cdi.SpecFileName(cdi.KindGPU)))
	return err == nil
}

func pod() *api.PodSandbox { return &api.PodSandbox{Id: "p", Name: "train", Namespace: "ml", Uid: "u"} }

func container(id string, names ...string) *api.Container {
	c := &api.Container{Id: id, PodSandboxId: "p", Name: "main", Mounts: []*api.Mount{{Destination: cdi.GuardPath, Type: "bind", Source: "/x"}}}
	for _, n := range names {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: n})
	}
	return c
}

const gpu0 = "nri-gpu.io/gpu=GPU-0"

func (b *bench) record(id string) (string, bool) {
	data, err := os.ReadFile(b.cfg.State().Container(id))
	return string(data), err == nil
}

func TestAContainerIsInjectedRecordedAndForgotten(t *testing.T) {
	b := newBench(t)
	b.publish()
	r := b.runtime("v2.4.2")
	defer r.Stop()
	b.start()
	b.serving(true)
	require.True(t, b.guard())
	carrier, err := cdi.ReadCarrier(b.cfg.Data().Carrier())
	require.NoError(t, err)
	require.Equal(t, cdi.CarrierCDI, carrier)

	adjustment, err := r.Create(t.Context(), pod(), container("c1", gpu0))
	require.NoError(t, err)
	paths := map[string]bool{}
	for _, d := range adjustment.GetLinux().GetDevices() {
		paths[d.GetPath()] = true
	}
	require.Equal(t, map[string]bool{"/dev/nvidia0": true, "/dev/nvidiactl": true, "/dev/nvidia-uvm": true, "/dev/nvidia-uvm-tools": true}, paths)
	require.Eventually(t, func() bool { text, ok := b.record("c1"); return ok && strings.Contains(text, gpu0) }, 5*time.Second, 5*time.Millisecond)

	require.NoError(t, r.StopContainer(t.Context(), pod(), container("c1")))
	require.Eventually(t, func() bool { _, ok := b.record("c1"); return !ok }, 5*time.Second, 5*time.Millisecond)

	_, err = r.Create(t.Context(), pod(), container("c2", "nri-gpu.io/gpu=GPU-1"))
	require.ErrorContains(t, err, "it was lost")
	adjustment, err = r.Create(t.Context(), pod(), &api.Container{Id: "c3", Name: "plain"})
	require.NoError(t, err)
	require.Empty(t, adjustment.GetLinux().GetDevices())

	require.NoError(t, b.stop())
	require.False(t, b.guard(), "no guard without us")
}

func TestItWaitsForTheSocketAndForTheInventory(t *testing.T) {
	b := newBench(t)
	b.start()
	b.serving(false)
	require.False(t, b.guard())
	r := b.runtime("v2.4.2")
	defer r.Stop()
	<-r.Synced
	b.serving(false)
	b.publish()
	b.serving(true)
	require.True(t, b.guard())
}

func TestItReconnectsAfterTheRuntimeRestarts(t *testing.T) {
	b := newBench(t)
	b.publish()
	held := container("old")
	held.Annotations = map[string]string{inject.InjectedAnnotation: gpu0}
	r := b.runtime("v2.4.2")
	b.start()
	b.serving(true)
	r.Stop()
	b.serving(false)
	require.False(t, b.guard())
	r = b.runtime("v2.4.2", held)
	defer r.Stop()
	b.serving(true)
	require.Eventually(t, func() bool { text, ok := b.record("old"); return ok && strings.Contains(text, `"pod": "train"`) }, 5*time.Second, 5*time.Millisecond,
		"the record is rebuilt from the runtime's containers")
}

func TestASocketThatDropsConnectionsIsTriedUntilItIsReal(t *testing.T) {
	b := newBench(t)
	b.publish()
	l, err := net.Listen("unix", b.cfg.NRISocket)
	require.NoError(t, err)
	dropped := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(dropped)
				return
			}
			_ = c.Close()
			dropped <- struct{}{}
		}
	}()
	b.start()
	<-dropped
	<-dropped
	require.NoError(t, l.Close())
	for range dropped {
		continue
	}
	r := b.runtime("v2.4.2")
	defer r.Stop()
	b.serving(true)
}

// TestARuntimeThatGoesBetweenRegisterAndConfigure answers what a stub sends
// first, Register, and closes before it sends Configure.
func TestARuntimeThatGoesBetweenRegisterAndConfigure(t *testing.T) {
	b := newBench(t)
	b.publish()
	l, err := net.Listen("unix", b.cfg.NRISocket)
	require.NoError(t, err)
	registered := make(chan struct{})
	go func() {
		defer close(registered)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		answerRegister(conn)
		_ = conn.Close()
	}()
	b.start()
	<-registered
	require.NoError(t, l.Close())
	r := b.runtime("v2.4.2")
	defer r.Stop()
	b.serving(true)
}

// answerRegister serves NRI's runtime service on a connection, and returns when
// a plugin was registered.
func answerRegister(conn net.Conn) {
	mux := multiplex.Multiplex(conn)
	listener, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return
	}
	service := &onlyRegister{done: make(chan struct{})}
	api.RegisterRuntimeService(server, service)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(context.Background(), listener)
	}()
	<-service.done
	_ = server.Shutdown(context.Background()) // after the answer
	_ = mux.Close()
	<-served
}

type onlyRegister struct{ done chan struct{} }

func (o *onlyRegister) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(o.done)
	return &api.Empty{}, nil
}

func (*onlyRegister) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}

func TestASecondInstanceIsRefused(t *testing.T) {
	b := newBench(t)
	b.start()
	b.serving(false)
	err := run(t.Context(), b.cfg, logrus.New())
	var held *flock.HeldError
	require.ErrorAs(t, err, &held)
}

func TestAnOlderRuntimeUsesTheAnnotation(t *testing.T) {
	b := newBench(t)
	b.publish()
	r := b.runtime("v1.7.30")
	defer r.Stop()
	b.start()
	b.serving(true)
	carrier, err := cdi.ReadCarrier(b.cfg.Data().Carrier())
	require.NoError(t, err)
	require.Equal(t, cdi.CarrierAnnotation, carrier)

	keys, err := cdi.ReadKeyring(b.cfg.Data().Key())
	require.NoError(t, err)
	token, err := keys.Sign(cdi.Grant{Resource: "nvidia.com/gpu", Names: []string{gpu0}})
	require.NoError(t, err)
	c := container("c1")
	c.Annotations = map[string]string{cdi.AnnotationKey("nvidia.com/gpu"): token}
	adjustment, err := r.Create(t.Context(), pod(), c)
	require.NoError(t, err)
	require.Len(t, adjustment.GetLinux().GetDevices(), 4)
}

func TestARuntimeThatIsTooOldMakesItNotReady(t *testing.T) {
	b := newBench(t)
	b.publish()
	r := b.runtime("v1.7.20")
	defer r.Stop()
	b.start()
	<-r.Synced
	b.serving(false)
	_, err := os.Stat(b.cfg.Data().Carrier())
	require.ErrorIs(t, err, os.ErrNotExist, "the device plugin must not register")
}

func TestANodeWithoutAGPUIsReadyAndHasNoGuard(t *testing.T) {
	b := newBench(t)
	b.inv = device.Inventory{Driver: device.Driver{State: device.DriverNoDevices, Reason: "no GPU"}}
	b.publish()
	r := b.runtime("v2.4.2")
	defer r.Stop()
	b.start()
	b.serving(true)
	require.False(t, b.guard())
}

func TestADriverThatIsGoneMakesItNotReady(t *testing.T) {
	b := newBench(t)
	b.publish()
	r := b.runtime("v2.4.2")
	defer r.Stop()
	b.start()
	b.serving(true)
	b.inv = device.Inventory{Driver: device.Driver{State: device.DriverNotLoaded, Reason: "load it"}}
	b.publish()
	b.serving(false)
	require.False(t, b.guard())
	_, err := r.Create(t.Context(), pod(), container("c1", gpu0))
	require.ErrorContains(t, err, "not usable")
}

func TestADecisionThatHangsIsAnErrorWithinOurDeadline(t *testing.T) {
	b := newBench(t)
	b.publish()
	d := newDaemon(b.cfg, logrus.New())
	release := make(chan struct{})
	d.injector.Health = func(string) string { <-release; return "" }
	p := d.newPlugin(func() {})
	p.setDeadline(50 * time.Millisecond)
	_, _, err := p.CreateContainer(t.Context(), pod(), container("c1", gpu0))
	require.ErrorContains(t, err, "could not decide within 20ms")
	close(release)
}

func TestAPanicIsAnErrorAndNotTheEndOfTheProcess(t *testing.T) {
	b := newBench(t)
	b.publish()
	log := logrus.New()
	log.SetOutput(io.Discard)
	d := newDaemon(b.cfg, log)
	d.injector.Health = func(string) string { panic("boom") }
	_, _, err := d.newPlugin(func() {}).CreateContainer(t.Context(), pod(), container("c1", gpu0))
	require.ErrorContains(t, err, "boom")
}

func TestBadSettingsEndTheProgramBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for args, want := range map[string]string{
		"--resource-name=":      "resource-name",
		"--plugin-index=4":      "plugin-index",
		"--injection=magic":     "injection",
		"--no-such-flag":        "no-such-flag",
		"--data-dir=relative/x": "data-dir",
	} {
		cmd := newCommand()
		cmd.SetArgs([]string{args, "--state-dir=" + filepath.Join(dir, "state"), "--cdi-dir=" + filepath.Join(dir, "cdi")})
		err := cmd.ExecuteContext(t.Context())
		require.ErrorContains(t, err, want, args)
		require.Equal(t, 2, cli.Status(err), args)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
