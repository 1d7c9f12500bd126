package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Kubernetes' own tests of device plugins ask for two devices of a resource of
// any name, with any node: a file describes them, and no driver is needed.
func TestADescribedInventoryNeedsNoDriver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.ResourceName, b.cfg.DevRoot, b.cfg.HostRoot, b.cfg.DriverRoot = "example.com/resource", "/", t.TempDir(), t.TempDir()
	ok := device.Health{Healthy: true}
	b.inv = device.Inventory{
		Driver: device.Driver{State: device.DriverReady, Absent: true},
		GPUs:   []device.GPU{{UUID: "Dev-1", Index: 0, NUMANode: -1, Node: "/dev/null", Health: ok}, {UUID: "Dev-2", Index: 1, NUMANode: -1, Node: "/dev/zero", Health: ok}},
	}
	b.writeInventory()
	b.start()
	b.kubelet.Wait("two devices", offers(map[string][]string{"example.com/resource": {"Dev-1", "Dev-2"}}))
	b.ready()
	client, _ := b.kubelet.Current()
	resp, err := client.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"Dev-2"}}}})
	require.NoError(t, err)
	require.Equal(t, "nri-gpu.io/gpu=Dev-2", resp.GetContainerResponses()[0].GetCdiDevices()[0].GetName())

	resolver := cdi.NewResolver(b.cfg.State().SpecDir(), nil)
	require.NoError(t, resolver.Load())
	require.True(t, resolver.Serves())
	injection, err := resolver.Resolve(cdi.Request{Names: []cdi.Name{{Kind: cdi.KindGPU, Device: "Dev-2"}}})
	require.NoError(t, err)
	require.Len(t, injection.Devices, 1)
	require.Equal(t, "/dev/zero", injection.Devices[0].Path)
	require.Empty(t, injection.Mounts)
}
