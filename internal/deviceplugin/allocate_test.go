package deviceplugin

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// registered is a node whose plugin is registered with a kubelet of 1.37.
func registered(t *testing.T, inv device.Inventory, adjust ...func(*Config)) (*node, pluginapi.DevicePluginClient) {
	t.Helper()
	n := newNode(t, adjust...)
	return n, n.follow(inv)
}

// follow runs the plugin and a kubelet, and returns once both are connected.
func (n *node) follow(inv device.Inventory) pluginapi.DevicePluginClient {
	n.t.Helper()
	k := fakekubelet.New(n.t, n.kubelet, modern())
	k.Start()
	n.list(inv)
	n.run()
	k.Wait("the list", func(v *fakekubelet.View) bool { return len(v.Devices) > 0 })
	n.ready()
	client, _ := k.Current()
	return client
}

func allocate(t *testing.T, client pluginapi.DevicePluginClient, ids ...string) (*pluginapi.ContainerAllocateResponse, error) {
	t.Helper()
	resp, err := client.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	require.Len(t, resp.GetContainerResponses(), 1)
	return resp.GetContainerResponses()[0], nil
}

func cdiNames(resp *pluginapi.ContainerAllocateResponse) []string {
	var out []string
	for _, d := range resp.GetCdiDevices() {
		out = append(out, d.GetName())
	}
	return out
}

func noCDI(c *Config) { c.NRI = nil }

func TestAllocateAnswersNamesInTheWayThatTheNodeTakes(t *testing.T) {
	t.Parallel()
	signed := map[string]string{"alloc.nri-gpu.io/nvidia.com_gpu": "signed [nri-gpu.io/gpu=GPU-0 nri-gpu.io/gpu=GPU-2]"}
	names := []string{"nri-gpu.io/gpu=GPU-0", "nri-gpu.io/gpu=GPU-2"}

	t.Run("the runtime takes the typed list: the list, and the annotation", func(t *testing.T) {
		t.Parallel()
		_, client := registered(t, gpus(4))
		resp, err := allocate(t, client, "GPU-2", "GPU-0")
		require.NoError(t, err)
		require.Equal(t, names, cdiNames(resp))
		require.Equal(t, signed, resp.GetAnnotations())
		require.Empty(t, resp.GetMounts())
		requireNoPaths(t, resp)
	})
	t.Run("the runtime does not: the annotation, and the guard as a mount", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.chooseCarrier(cdi.CarrierAnnotation)
		k := fakekubelet.New(t, n.kubelet, old())
		k.Start()
		n.list(gpus(4))
		n.run()
		k.Wait("the list", listed(4))
		client, _ := k.Current()
		resp, err := allocate(t, client, "GPU-0", "GPU-2")
		require.NoError(t, err)
		require.Empty(t, resp.GetCdiDevices())
		require.Equal(t, signed, resp.GetAnnotations())
		require.Len(t, resp.GetMounts(), 1)
		guard := resp.GetMounts()[0]
		require.Equal(t, "/dev/null", guard.GetHostPath())
		require.Equal(t, "/proc/nri-gpu-was-not-running-when-this-container-was-created", guard.GetContainerPath())
		require.True(t, guard.GetReadOnly())
		requireNoPaths(t, resp)
	})
	t.Run("the runtime injects: the list alone", func(t *testing.T) {
		t.Parallel()
		_, client := registered(t, gpus(4), noCDI)
		resp, err := allocate(t, client, "GPU-0", "GPU-2")
		require.NoError(t, err)
		require.Equal(t, names, cdiNames(resp))
		require.Empty(t, resp.GetAnnotations())
		require.Empty(t, resp.GetMounts())
		requireNoPaths(t, resp)
	})
}

// requireNoPaths: the kubelet replays the answer over upgrades and reboots.
func requireNoPaths(t *testing.T, resp *pluginapi.ContainerAllocateResponse) {
	t.Helper()
	require.Empty(t, resp.GetEnvs())
	require.Empty(t, resp.GetDevices())
}

func TestAllocateNamesEachCardOnce(t *testing.T) {
	t.Parallel()
	inv := gpus(3)
	inv.GPUs[1].Health = device.Health{Reason: "XID 79"}
	inv.GPUs[2].MIGEnabled = true
	inv.GPUs[2].MIGDevices = []device.MIGDevice{{UUID: "MIG-GPU-2/1/0", Health: device.Health{Healthy: true}}}
	_, client := registered(t, inv)
	for name, c := range map[string]struct{ ids, want []string }{
		"one card":                      {[]string{"GPU-0"}, []string{"nri-gpu.io/gpu=GPU-0"}},
		"a card given twice":            {[]string{"GPU-0", "GPU-0"}, []string{"nri-gpu.io/gpu=GPU-0"}},
		"two replicas of a card":        {[]string{"GPU-0::0", "GPU-0::11"}, []string{"nri-gpu.io/gpu=GPU-0"}},
		"an unhealthy card is answered": {[]string{"GPU-1"}, []string{"nri-gpu.io/gpu=GPU-1"}},
		"a MIG device of an old driver": {[]string{"MIG-GPU-2/1/0::3"}, []string{"nri-gpu.io/gpu=MIG-GPU-2_1_0"}},
		"nothing":                       {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := allocate(t, client, c.ids...)
			require.NoError(t, err)
			require.Equal(t, c.want, cdiNames(resp))
			require.Equal(t, len(c.want) > 0, len(resp.GetAnnotations()) > 0)
		})
	}
}

func TestAllocateErrsOnlyForAnIDThatWasNeverListed(t *testing.T) {
	t.Parallel()
	n, client := registered(t, gpus(2))
	for _, ids := range [][]string{{"GPU-7"}, {"GPU-0", "GPU-7"}, {"GPU-7::0"}, {""}, {"::"}, {"GPU"}} {
		_, err := allocate(t, client, ids...)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%q: %v", ids, err)
		require.ErrorContains(t, err, `"`+ids[len(ids)-1]+`"`)
		require.ErrorContains(t, err, testResource)
	}
	n.list(gpus(1))
	resp, err := allocate(t, client, "GPU-1")
	require.NoError(t, err, "a card that is gone is refused at creation, where the kubelet tries again")
	require.Equal(t, []string{"nri-gpu.io/gpu=GPU-1"}, cdiNames(resp))
}

func TestAllocateThatCannotBeSignedIsRefused(t *testing.T) {
	t.Parallel()
	_, client := registered(t, gpus(1), func(c *Config) {
		c.NRI.Annotate = func([]string) (string, string, error) { return "", "", errors.New("no key") }
	})
	_, err := allocate(t, client, "GPU-0")
	require.Equal(t, codes.Internal, status.Code(err))
	require.ErrorContains(t, err, "no key")
}

func TestAContainerStartsOnlyWhileNRIGPUIsConnected(t *testing.T) {
	t.Parallel()
	n, client := registered(t, gpus(1))
	start := func() error {
		_, err := client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{"GPU-0"}})
		return err
	}
	requireHeld := func(why string) {
		t.Helper()
		err := start()
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "journalctl -u nri-gpu")
	}
	requireHeld("does not exist")
	nri := n.startNRIGPU(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	requireHeld("NOT_SERVING")
	n.plugin.SetDevices(resources.Resource{Name: testResource}, device.Inventory{Driver: device.Driver{State: device.DriverNotLoaded, Reason: "load it"}})
	require.EqualError(t, start(), "rpc error: code = Unavailable desc = the container waits for its GPU GPU-0: the driver is not-loaded: load it; the kubelet tries again by itself")
	n.plugin.SetDevices(offer(gpus(1)), gpus(1))
	nri.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	require.NoError(t, start())
	nri.stop()
	require.NoError(t, os.WriteFile(n.nri.HealthSocket, nil, 0o600)) // what a kill leaves, near enough
	requireHeld("cannot be asked")
}

func TestAnNRIGPUThatDoesNotAnswerHoldsTheKubeletUpForAMomentOnly(t *testing.T) {
	t.Parallel()
	n, client := registered(t, gpus(1))
	listenWithoutAccepting(t, n.nri.HealthSocket)
	begin := time.Now()
	_, err := client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "did not answer")
	require.Less(t, time.Since(begin), 2*time.Second)
}

func TestWhereTheRuntimeInjectsNothingIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t, noCDI)
	require.NoError(t, os.Remove(n.nri.CarrierFile))
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(1))
	n.run()
	k.Wait("the list", listed(1))
	client, options := k.Current()
	require.False(t, options.GetPreStartRequired())
	_, err := client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{})
	require.NoError(t, err)
}
