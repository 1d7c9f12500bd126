package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakemps"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// TestMain is also the NVML worker: the daemon runs its own program.
func TestMain(m *testing.M) {
	if code, ours := fakemps.Main(); ours {
		os.Exit(code) //nolint:forbidigo // this process is one of the driver's programs
	}
	if len(os.Args) == 3 && os.Args[1] == nvml.WorkerCommand {
		if err := nvml.Serve(os.Args[2], nvml.GPUDeadline, os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// bench is a node with two cards, described by a file, and a kubelet.
type bench struct {
	t       testing.TB
	cfg     settings
	inv     device.Inventory
	kubelet *fakekubelet.Kubelet
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	dir, err := os.MkdirTemp("", "gdp") //nolint:usetesting // tb.TempDir is too long for a socket
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(dir)) })
	hook := filepath.Join(dir, "gpu-hook")
	require.NoError(tb, os.WriteFile(hook, []byte("#!/bin/sh\n"), 0o755))
	b := &bench{t: tb}
	b.cfg = settings{
		Inventory: filepath.Join(dir, "inventory.json"), DiscoverInterval: minInterval, RetryInterval: minInterval,
		MIGStrategy: "none", Allocation: "distributed", apiSettings: apiSettings{ConfigLabel: "nvidia.com/device-plugin.config"},
		Daemon: config.Daemon{
			Paths: config.Paths{
				HostRoot: filepath.Join(dir, "h"), DevRoot: filepath.Join(dir, "d"), StateDir: filepath.Join(dir, "s"),
				DataDir: filepath.Join(dir, "l"), CDIDir: filepath.Join(dir, "cdi"), HookPath: hook,
			},
			KubeletDir: filepath.Join(dir, "k"), NRISocket: "/nri.sock", Injection: config.InjectionNRI, DriverMounts: config.MountsByHook, ResourceName: "nvidia.com/gpu",
			AllowedCapabilities: []string{cdi.DeviceAll}, ListenAddress: freeAddress(tb), Log: config.Log{Level: "info", Format: "text"},
		},
	}
	require.NoError(tb, b.cfg.Validate())
	b.inv = device.Inventory{
		Driver: device.Driver{State: device.DriverReady, Version: fakehost.DriverVersion},
		GPUs: []device.GPU{
			{UUID: "GPU-0", Minor: 0, Index: 0, PCIBusID: "0000:07:00.0", Health: device.Health{Healthy: true}},
			{UUID: "GPU-1", Minor: 1, Index: 1, PCIBusID: "0000:0f:00.0", NUMANode: 1, Health: device.Health{Healthy: true}},
		},
	}
	require.NoError(tb, fakeroot.Make(b.cfg.HostRoot, fakeroot.Options{Layout: "ubuntu", Version: fakehost.DriverVersion}))
	require.NoError(tb, fakehost.Make(b.cfg.Roots(), b.inv))
	b.writeInventory()
	b.chooseCarrier()
	b.kubelet = fakekubelet.New(tb, b.cfg.KubeletDir, fakekubelet.Script{KeyedBySocket: true, Streams: 1})
	b.kubelet.Start()
	return b
}

// listen binds a port that is free.
func listen(tb testing.TB) net.Listener {
	tb.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	return l
}

// freeAddress is one that nobody listens on now.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l := listen(tb)
	defer l.Close()
	return l.Addr().String()
}

func (b *bench) writeInventory() {
	b.t.Helper()
	data, err := json.Marshal(b.inv)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(b.cfg.Inventory+".new", data, 0o600))
	require.NoError(b.t, os.Rename(b.cfg.Inventory+".new", b.cfg.Inventory))
}

func (b *bench) chooseCarrier() {
	b.t.Helper()
	data, err := cdi.EncodeCarrier(cdi.CarrierCDI, cdi.Runtime{Name: "containerd", Version: "2.4.2"})
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(b.cfg.DataDir, 0o755))
	require.NoError(b.t, os.WriteFile(b.cfg.Data().Carrier(), data, 0o600))
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// start runs the daemon; stop ends it and returns what it ended with.
func (b *bench) start() (stop func() error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, b.cfg, quiet()) }()
	ended := false
	stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	b.t.Cleanup(func() { require.NoError(b.t, stop()) })
	return stop
}

// get asks the daemon, and waits for it to listen.
func (b *bench) get(path string) (status int, body string) {
	b.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	require.Eventually(b.t, func() bool {
		req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.cfg.ListenAddress+path, http.NoBody)
		if err != nil {
			return false
		}
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		status, body = resp.StatusCode, string(data)
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
	return status, body
}

// readyz waits until readiness has a status, and a reason that contains a text.
func (b *bench) readyz(want int, text string) {
	b.t.Helper()
	require.EventuallyWithT(b.t, func(c *assert.CollectT) {
		status, body := b.get("/readyz")
		require.Equal(c, want, status, body)
		require.Contains(c, body, text)
	}, 15*time.Second, 10*time.Millisecond)
}

func (b *bench) ready() {
	b.t.Helper()
	b.readyz(http.StatusOK, "ok")
}

func (b *bench) notReady(text string) {
	b.t.Helper()
	b.readyz(http.StatusServiceUnavailable, text)
}

func healthy(n int) func(*fakekubelet.View) bool {
	return func(v *fakekubelet.View) bool { return v.Streams > 0 && v.Healthy() == n }
}

func TestACardIsPublishedListedAndAllocated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stop := b.start()
	b.kubelet.Wait("two healthy cards", healthy(2))
	// Whoever sees a device listed finds its spec.
	resolver := cdi.NewResolver(b.cfg.State().SpecDir(), func(p string) string { return p })
	require.NoError(t, resolver.Load())
	require.True(t, resolver.Serves())
	var inv device.Inventory
	data, err := os.ReadFile(b.cfg.State().Inventory())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &inv))
	require.Len(t, inv.GPUs, 2)
	b.ready()

	client, options := b.kubelet.Current()
	require.True(t, options.GetPreStartRequired())
	resp, err := client.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"GPU-1"}}}})
	require.NoError(t, err)
	answer := resp.GetContainerResponses()[0]
	require.Equal(t, "nri-gpu.io/gpu=GPU-1", answer.GetCdiDevices()[0].GetName())
	keys, err := cdi.ReadKeyring(b.cfg.Data().Key())
	require.NoError(t, err)
	key := cdi.AnnotationKey("nvidia.com/gpu")
	grant, err := keys.Verify(key, answer.GetAnnotations()[key])
	require.NoError(t, err)
	require.Equal(t, cdi.Grant{Resource: "nvidia.com/gpu", Names: []string{"nri-gpu.io/gpu=GPU-1"}}, grant)

	_, metrics := b.get("/metrics")
	require.Contains(t, metrics, "nri_gpu_deviceplugin_driver_ready 1\n")
	require.Contains(t, metrics, `nri_gpu_deviceplugin_allocations_total{resource="nvidia.com/gpu",result="ok"} 1`)
	_, state := b.get("/debug/state")
	var seen debugState
	require.NoError(t, json.Unmarshal([]byte(state), &seen))
	require.True(t, seen.Ready)
	require.Equal(t, "cdi", seen.Plugins[0].Carrier)
	require.Len(t, seen.Plugins[0].Devices, 2)

	require.NoError(t, stop())
	left, err := filepath.Glob(filepath.Join(b.cfg.KubeletDir, "nri-gpu-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestACardWhoseNodeVanishesIsUnhealthyAndTheOtherServes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	b.kubelet.Wait("two healthy cards", healthy(2))
	// A file in its place cannot be made anew.
	node := b.cfg.Roots().DevPath("/dev/nvidia1")
	require.NoError(t, os.Remove(node))
	require.NoError(t, os.Mkdir(node, 0o755))
	b.kubelet.Wait("one healthy card of two", func(v *fakekubelet.View) bool { return v.Healthy() == 1 && len(v.Devices) == 2 })
	b.ready()
	_, state := b.get("/debug/state")
	require.Contains(t, state, "/dev/nvidia1")

	require.NoError(t, os.Remove(node))
	b.kubelet.Wait("both again: the node is made", healthy(2))
}

func TestADriverThatGoesAndComesIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	good := b.inv
	b.inv = device.Inventory{Driver: device.Driver{State: device.DriverNotLoaded, Reason: "load it with modprobe nvidia"}}
	b.writeInventory()
	b.start()
	b.notReady("the driver is not-loaded: load it with modprobe nvidia")
	require.Empty(t, b.kubelet.Registrations())

	failed := b.inv
	b.inv = good
	b.writeInventory()
	b.kubelet.Wait("two healthy cards", healthy(2))
	b.ready()

	b.inv = failed
	b.writeInventory()
	b.kubelet.Wait("no healthy card of two", func(v *fakekubelet.View) bool { return v.Healthy() == 0 && len(v.Devices) == 2 })
	b.notReady("the driver is not-loaded")
}

func TestDriverFilesThatAreIncompleteAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	library := filepath.Join(b.cfg.HostRoot, "usr/lib/x86_64-linux-gnu/libcuda.so."+fakehost.DriverVersion)
	away := filepath.Join(b.cfg.DataDir, "libcuda")
	require.NoError(t, os.Rename(library, away))
	b.start()
	b.notReady("libcuda.so." + fakehost.DriverVersion)
	require.NoError(t, os.Rename(away, library))
	b.kubelet.Wait("two healthy cards", healthy(2))
	b.ready()
}

func TestANodeWithoutAGPUIsReadyAndRegistersNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.inv = device.Inventory{Driver: device.Driver{State: device.DriverNoDevices}}
	b.writeInventory()
	b.start()
	b.ready()
	require.FileExists(t, b.cfg.State().Inventory())
	require.Empty(t, b.kubelet.Registrations())
}

func TestWithoutNRIGPUReadinessSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, os.Remove(b.cfg.Data().Carrier()))
	b.start()
	b.notReady("nri-gpu has not met the container runtime yet")
	b.chooseCarrier()
	b.ready()
}

func TestWhatCannotBePublishedIsNotListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, os.MkdirAll(b.cfg.State().Inventory(), 0o755)) // a directory in the file's place
	b.start()
	b.notReady("could not be published")
	require.Empty(t, b.kubelet.Registrations())
	require.NoError(t, os.Remove(b.cfg.State().Inventory()))
	b.kubelet.Wait("two healthy cards", healthy(2))
}

func TestWhereTheRuntimeInjectsTheWholeSpecTakesTheGuardsPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.Injection = config.InjectionCDI
	require.NoError(t, os.RemoveAll(b.cfg.DataDir))
	b.start()
	b.kubelet.Wait("two healthy cards", healthy(2))
	_, options := b.kubelet.Current()
	require.False(t, options.GetPreStartRequired())
	data, err := os.ReadFile(filepath.Join(b.cfg.CDIDir, "nri-gpu.io-gpu.json"))
	require.NoError(t, err)
	var spec struct {
		Kind    string
		Devices []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal(data, &spec))
	require.Equal(t, cdi.KindGPU, spec.Kind)
	require.Len(t, spec.Devices, 2)
	require.Contains(t, string(data), "libcuda.so."+fakehost.DriverVersion)
	require.NoDirExists(t, b.cfg.DataDir, "no key is needed")

	b.inv.GPUs[0].Health = device.Health{Reason: "XID 79"}
	b.inv.GPUs[1].Health = device.Health{Reason: "XID 79"}
	b.writeInventory()
	b.kubelet.Wait("no healthy card", healthy(0))
	require.NoFileExists(t, filepath.Join(b.cfg.CDIDir, "nri-gpu.io-gpu.json"))
}

func TestASecondInstanceIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	b.ready()
	err := run(t.Context(), b.cfg, quiet())
	require.ErrorContains(t, err, "another instance")
	require.Equal(t, 1, cli.Status(err))
}

func TestAnAddressThatIsTakenEndsTheDaemonAtStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := listen(t)
	defer l.Close()
	b.cfg.ListenAddress = l.Addr().String()
	require.ErrorContains(t, run(t.Context(), b.cfg, quiet()), b.cfg.ListenAddress)
}

// The driver's library, its files and the device nodes appear one after the
// other under a daemon that runs.
func TestADriverThatIsInstalledLaterIsPickedUp(t *testing.T) {
	machine := filepath.Join(t.TempDir(), "machine.json")
	fake, err := fakelib.Load("t4x1")
	require.NoError(t, err)
	require.NoError(t, fake.Write(machine))
	t.Setenv("NRI_GPU_FAKE_NVML_CONFIG", machine)
	b := newBench(t)
	b.cfg.Inventory = ""
	b.cfg.DriverRoot = filepath.Join(filepath.Dir(b.cfg.HostRoot), "driver")
	b.start()
	b.notReady("the driver is library-missing")

	library := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	require.NoError(t, fakelib.Build(t.Context(), library))
	require.NoError(t, fakeroot.Make(b.cfg.DriverRoot, fakeroot.Options{Layout: "ubuntu", Version: fakehost.DriverVersion, NVML: library}))
	installed := time.Now()
	b.kubelet.Wait("the card", healthy(1))
	require.Less(t, time.Since(installed), 5*time.Second)
	b.ready()
}
