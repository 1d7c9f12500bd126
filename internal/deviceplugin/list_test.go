package deviceplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
)

func TestTheListSaysHealthAndNUMANode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	inv := gpus(4)
	inv.GPUs[1].Health = device.Health{Reason: "it fell off the bus"}
	inv.GPUs[2].NUMANode = -1
	n.list(inv)
	n.run()
	k.Wait("three healthy devices", listed(3))

	type row struct {
		id, health string
		node       int64
	}
	var got []row
	for _, d := range k.List() {
		got = append(got, row{d.GetID(), d.GetHealth(), numaNode(d)})
	}
	require.Equal(t, []row{
		{"GPU-0", pluginapi.Healthy, 0},
		{"GPU-1", pluginapi.Unhealthy, 0},
		{"GPU-2", pluginapi.Healthy, -1},
		{"GPU-3", pluginapi.Healthy, 1},
	}, got)
	require.Equal(t, "it fell off the bus", n.plugin.State().Devices[1].Health.Reason)
	n.ready() // the other cards serve
}

// The fake kubelet fails a test whose lists omit a device.
func TestADeviceOnceListedIsNeverDropped(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(3))
	n.run()
	k.Wait("three healthy devices", listed(3))

	n.list(gpus(1))
	k.Wait("one healthy of three", func(v *fakekubelet.View) bool { return v.Healthy() == 1 && len(v.Devices) == 3 })
	require.Equal(t, reasonGone, n.plugin.State().Devices[2].Health.Reason)

	mig := gpus(2)
	mig.GPUs[0].MIGEnabled = true
	mig.GPUs[0].MIGDevices = []device.MIGDevice{{UUID: "MIG-0", Health: device.Health{Healthy: true}}}
	n.list(mig)
	k.Wait("the card in MIG mode as its MIG device", func(v *fakekubelet.View) bool {
		return v.Devices["GPU-0"] == pluginapi.Unhealthy && v.Devices["MIG-0"] == pluginapi.Healthy && v.Devices["GPU-1"] == pluginapi.Healthy
	})

	n.list(device.Inventory{Driver: device.Driver{State: device.DriverNotLoaded, Reason: "modprobe nvidia"}})
	k.Wait("nothing healthy of four", func(v *fakekubelet.View) bool { return v.Healthy() == 0 && len(v.Devices) == 4 })
	require.Equal(t, "the driver is not-loaded: modprobe nvidia", n.plugin.State().Devices[0].Health.Reason)
	n.list(gpus(3))
	k.Wait("three healthy of four", func(v *fakekubelet.View) bool { return v.Healthy() == 3 && len(v.Devices) == 4 })
}

func TestAListIsSentOnlyWhenItChanged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(2))
	n.run()
	k.Wait("two healthy devices", listed(2))
	lists := k.Now().Lists
	for range 100 {
		n.list(gpus(2))
	}
	linked := gpus(2)
	linked.Links = []device.Link{{A: "GPU-0", B: "GPU-1", NVLinks: 4}}
	linked.GPUs[0].Model = "another"
	n.list(linked)
	n.list(gpus(3))
	k.Wait("three healthy devices", listed(3))
	require.Equal(t, lists+1, k.Now().Lists)
}

func TestAStreamThatIsBehindGetsTheLatestList(t *testing.T) {
	t.Parallel()
	l := newList()
	l.set(offer(gpus(1)), gpus(1))
	first := l.load()
	l.set(offer(gpus(2)), gpus(2))
	l.set(offer(gpus(3)), gpus(3))
	select {
	case <-first.replaced:
	case <-time.After(time.Second):
		require.FailNow(t, "a replaced list must wake its streams")
	}
	require.Len(t, l.load().devices, 3)
	require.Len(t, first.devices, 1, "a list that was published does not change")
}

func TestWhatChangedIsReportedOnce(t *testing.T) {
	t.Parallel()
	l := newList()
	require.Len(t, l.set(offer(gpus(2)), gpus(2)), 2)
	require.Empty(t, l.set(offer(gpus(2)), gpus(2)))
	sick := gpus(2)
	sick.GPUs[1].Health = device.Health{Reason: "XID 79"}
	require.Equal(t, []change{{id: "GPU-1", health: device.Health{Reason: "XID 79"}}}, l.set(offer(sick), sick))
	require.Empty(t, l.set(offer(sick), sick))
	require.Equal(t, []change{{id: "GPU-1", health: device.Health{Healthy: true}}}, l.set(offer(gpus(2)), gpus(2)))
}
