package deviceplugin

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testResource = "nvidia.com/gpu"

// node is the directories of one node, and a plugin for it.
type node struct {
	t       *testing.T
	kubelet string
	nri     *NRI
	guard   string // path of the guard spec
	keeper  *guardKeeper
	plugin  *Plugin
	stop    func()
}

// newNode makes a node whose nri-gpu has chosen a carrier and does not run. Its
// path is short: a Unix socket's may have 107 bytes.
func newNode(t *testing.T, adjust ...func(*Config)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	cfg := Config{
		Resource:   testResource,
		KubeletDir: filepath.Join(dir, "kubelet"),
		NRI: &NRI{
			HealthSocket: filepath.Join(dir, "state", "nri-gpu.sock"),
			CarrierFile:  filepath.Join(dir, "data", "carrier.json"),
			Annotate: func(names []string) (string, string, error) {
				return cdi.AnnotationKey(testResource), fmt.Sprint("signed ", names), nil
			},
		},
		Metrics: prometheus.NewRegistry(),
		Log:     quiet(),
	}
	for _, d := range []string{"kubelet", "state", "cdi", "data"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	nri := cfg.NRI
	for _, a := range adjust {
		a(&cfg)
	}
	n := &node{t: t, kubelet: cfg.KubeletDir, nri: nri, guard: filepath.Join(dir, "cdi", "nri-gpu.io-gpu.json"), stop: func() {}}
	n.keeper = &guardKeeper{gate: gate{nri.HealthSocket}, spec: n.guard, retry: 10 * time.Millisecond, settle: 50 * time.Millisecond, log: quiet()}
	n.chooseCarrier(cdi.CarrierCDI)
	n.plugin, err = New(cfg)
	require.NoError(t, err)
	n.plugin.timing = timing{
		poll: 20 * time.Millisecond, register: 500 * time.Millisecond, streamGrace: 200 * time.Millisecond, steady: time.Second,
		backoffMin: 10 * time.Millisecond, backoffMax: 100 * time.Millisecond, stop: 200 * time.Millisecond,
	}
	return n
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func (n *node) chooseCarrier(c cdi.Carrier) {
	n.t.Helper()
	data, err := cdi.EncodeCarrier(c, cdi.Runtime{Name: "containerd", Version: "2.4.2"})
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(n.nri.CarrierFile, data, 0o600))
}

// run runs the plugin until the test ends, or the returned function is called.
func (n *node) run() (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.plugin.Run(ctx) })
	running.Go(func() { n.keeper.run(ctx) })
	stop = func() { cancel(); running.Wait() }
	n.t.Cleanup(stop)
	return stop
}

// list advertises every device of an inventory.
func (n *node) list(inv device.Inventory) {
	n.plugin.SetDevices(offer(inv), inv)
}

// offer has every device of an inventory under the tests' resource.
func offer(inv device.Inventory) resources.Resource {
	r := resources.Resource{Name: testResource}
	for _, a := range inv.Allocatables() {
		r.Devices = append(r.Devices, resources.Device{ID: a.UUID, Allocatable: a})
	}
	return r
}

// replicas offers every device n times.
func replicas(inv device.Inventory, n int) resources.Resource {
	return resources.Make(&inv, &resources.Config{
		Whole: testResource, MIG: resources.MIGMixed, Shares: []resources.Share{{Resource: testResource, Replicas: n, Strategy: resources.TimeSlicing}},
	}).Resources[0]
}

// ready waits until the plugin knows of an open stream.
func (n *node) ready() {
	n.t.Helper()
	require.Eventually(n.t, func() bool { return len(n.plugin.NotReady()) == 0 }, 20*time.Second, 5*time.Millisecond)
}

// sockets are the plugin's socket files.
func (n *node) sockets() []string {
	n.t.Helper()
	found, err := filepath.Glob(filepath.Join(n.kubelet, socketPrefix+"*"))
	require.NoError(n.t, err)
	return found
}

// nriGPU serves nri-gpu's health.
type nriGPU struct {
	*health.Server
	stop func()
}

func (n *node) startNRIGPU(status grpc_health_v1.HealthCheckResponse_ServingStatus) *nriGPU {
	n.t.Helper()
	require.NoError(n.t, os.RemoveAll(n.nri.HealthSocket))
	listener, err := net.Listen("unix", n.nri.HealthSocket)
	require.NoError(n.t, err)
	server, service := grpc.NewServer(), health.NewServer()
	service.SetServingStatus("", status)
	grpc_health_v1.RegisterHealthServer(server, service)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	stop := func() { server.Stop(); serving.Wait() }
	n.t.Cleanup(stop)
	return &nriGPU{Server: service, stop: stop}
}

// gpus is an inventory of healthy cards GPU-0, GPU-1 …, half of them on each of
// two NUMA nodes.
func gpus(count int) device.Inventory {
	inv := device.Inventory{Driver: device.Driver{State: device.DriverReady}}
	for i := range count {
		inv.GPUs = append(inv.GPUs, device.GPU{
			UUID: fmt.Sprintf("GPU-%d", i), Index: i, Minor: i, NUMANode: 2 * i / count, Health: device.Health{Healthy: true},
		})
	}
	return inv
}

// modern is a kubelet of 1.37 that accepts.
func modern() fakekubelet.Script { return fakekubelet.Script{KeyedBySocket: true, Streams: 1} }

// old is a kubelet of 1.36 that accepts.
func old() fakekubelet.Script { return fakekubelet.Script{Streams: 1} }

func listed(healthy int) func(*fakekubelet.View) bool {
	return func(v *fakekubelet.View) bool { return v.Streams > 0 && v.Healthy() == healthy }
}
