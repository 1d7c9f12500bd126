package deviceplugin

import (
	"testing"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
)

// health of one card is that of each of its replicas (a fault of another plugin:
// one replica went unhealthy and the others were given out).
func TestEveryReplicaOfASickCardIsUnhealthy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	inv := gpus(2)
	n.plugin.SetDevices(replicas(inv, 4), inv)
	n.run()
	k.Wait("eight replicas", listed(8))
	inv.GPUs[0].Health = device.Health{Reason: "XID 95"}
	n.plugin.SetDevices(replicas(inv, 4), inv)
	k.Wait("four of eight", func(v *fakekubelet.View) bool {
		return v.Healthy() == 4 && v.Devices["GPU-0::0"] == pluginapi.Unhealthy && v.Devices["GPU-0::3"] == pluginapi.Unhealthy && v.Devices["GPU-1::2"] == pluginapi.Healthy
	})
}

func TestFewerReplicasTakeTheHighestAwayAndMoreAddSome(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	inv := gpus(1)
	n.plugin.SetDevices(replicas(inv, 4), inv)
	n.run()
	k.Wait("four replicas", listed(4))
	n.plugin.SetDevices(replicas(inv, 2), inv)
	k.Wait("the two highest are unhealthy", func(v *fakekubelet.View) bool {
		return v.Healthy() == 2 && len(v.Devices) == 4 && v.Devices["GPU-0::3"] == pluginapi.Unhealthy && v.Devices["GPU-0::1"] == pluginapi.Healthy
	})
	require.Equal(t, reasonWithdrawn, n.plugin.State().Devices[3].Health.Reason)
	n.plugin.SetDevices(replicas(inv, 6), inv)
	k.Wait("six replicas", listed(6))
}

func TestReplicasOfOneCardAreOneName(t *testing.T) {
	t.Parallel()
	n, client := registered(t, gpus(2))
	n.plugin.SetDevices(replicas(gpus(2), 3), gpus(2))
	resp, err := allocate(t, client, "GPU-0::0", "GPU-0::2", "GPU-1::1")
	require.NoError(t, err)
	require.Equal(t, []string{"nri-gpu.io/gpu=GPU-0", "nri-gpu.io/gpu=GPU-1"}, cdiNames(resp))
	// What the kubelet recorded before sharing was switched on, or with more
	// replicas, is answered still.
	for _, id := range []string{"GPU-0", "GPU-0::7"} {
		resp, err = allocate(t, client, id)
		require.NoError(t, err)
		require.Equal(t, []string{"nri-gpu.io/gpu=GPU-0"}, cdiNames(resp))
	}
}

func TestARequestForSeveralSharesCanBeRefused(t *testing.T) {
	t.Parallel()
	n, client := registered(t, gpus(2))
	r := replicas(gpus(2), 3)
	r.FailMultiple = true
	n.plugin.SetDevices(r, gpus(2))
	_, err := allocate(t, client, "GPU-0::0", "GPU-1::0")
	require.ErrorContains(t, err, "maximum request size for shared resources is 1; found 2")
	require.ErrorContains(t, err, testResource)
	_, err = allocate(t, client, "GPU-1::0")
	require.NoError(t, err)
}

func TestReplicasAreSpreadOrPacked(t *testing.T) {
	t.Parallel()
	topo := newTopology(gpus(3))
	free := []string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::2", "GPU-2::0", "GPU-2::1"}
	require.Equal(t, []string{"GPU-0::0"}, prefer(topo, false, free, nil, 1))
	require.Equal(t, []string{"GPU-1::2"}, prefer(topo, true, free, nil, 1))
	require.Equal(t, []string{"GPU-0::0", "GPU-2::0"}, prefer(topo, false, free, nil, 2))
	require.Equal(t, []string{"GPU-1::2", "GPU-2::0"}, prefer(topo, true, free, nil, 2), "of different cards all the same")
}
