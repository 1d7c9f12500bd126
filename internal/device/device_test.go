package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

func TestAGPUInMIGModeIsServedAsItsMIGDevices(t *testing.T) {
	t.Parallel()
	healthy := device.Health{Healthy: true}
	lost := device.Health{Reason: "lost"}
	inv := device.Inventory{GPUs: []device.GPU{
		{UUID: "GPU-a", Health: healthy},
		{UUID: "GPU-b", Index: 1, MIGEnabled: true, Health: healthy, MIGDevices: []device.MIGDevice{{UUID: "MIG-b0", Health: healthy}, {UUID: "MIG-b1", Health: lost}}},
		{UUID: "GPU-c", MIGEnabled: true, Health: lost, MIGDevices: []device.MIGDevice{{UUID: "MIG-c0", Health: healthy}}},
		{UUID: "GPU-d", MIGEnabled: true, Health: healthy},
	}}
	got := map[string]device.Health{}
	for _, a := range inv.Allocatables() {
		got[a.UUID] = a.Health
	}
	require.Equal(t, map[string]device.Health{"GPU-a": healthy, "MIG-b0": healthy, "MIG-b1": lost, "MIG-c0": lost}, got)

	found, ok := inv.Find("MIG-b0")
	require.True(t, ok)
	require.Equal(t, "GPU-b", found.GPU.UUID)
	require.Equal(t, "1:0", found.Index())
	found, ok = inv.Find("GPU-b")
	require.True(t, ok, "a GPU in MIG mode has a name, too")
	require.Nil(t, found.MIG)
	_, ok = inv.Find("GPU-x")
	require.False(t, ok)
}
