package nvml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

func TestMIGDevicesHaveTheirAttributes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h100x8-mig")
	mig, _ := m.config.Device(0)["mig"].([]any)
	first, _ := mig[0].(map[string]any)
	first["attributes"] = map[string]any{"multiprocessors": 60, "copy_engines": 3, "decoders": 3, "encoders": 1, "jpegs": 2, "ofas": 4}
	m.write(t)
	inv := m.Discover(t.Context())
	require.Equal(t, &device.MIGAttributes{
		Multiprocessors: 60, GPUSlices: 3, ComputeSlices: 3, CopyEngines: 3, Decoders: 3, Encoders: 1, JPEGEngines: 2, OFAEngines: 4,
	}, inv.GPUs[0].MIGDevices[0].Attributes)
	require.Equal(t, new(true), inv.GPUs[2].MIGCapable)

	m.config.Device(0)["fail"] = map[string]any{"nvmlDeviceGetAttributes_v2": 3}
	m.write(t)
	inv = m.until(t, "unknown", func(inv device.Inventory) bool { return inv.GPUs[0].MIGDevices[0].Attributes == nil })
	require.Equal(t, "3g.40gb", inv.GPUs[0].MIGDevices[0].Profile)
	require.True(t, inv.GPUs[0].Health.Healthy, "no device needs them")
	require.NotNil(t, inv.GPUs[1].MIGDevices[0].Attributes)
}

func TestWhetherACardCanDoMIGIsKnownOrUnknown(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "mixed")
	m.config.Device(1)["fail"] = map[string]any{"nvmlDeviceGetMigMode": 999}
	m.write(t)
	inv := m.Discover(t.Context())
	require.Equal(t, new(false), inv.GPUs[0].MIGCapable)
	require.Nil(t, inv.GPUs[1].MIGCapable)
}

func TestAFabricCountsOnceItIsJoined(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	const cluster = "0badc0de-0001-4000-8000-0000000000ff"
	m.config.Device(0)["fabric"] = map[string]any{"cluster": cluster, "clique": 32766}
	m.config.Device(1)["fabric"] = map[string]any{"cluster": cluster, "clique": 32766, "state": 2}
	m.config.Device(2)["fail"] = map[string]any{"nvmlDeviceGetGpuFabricInfoV": 999}
	m.write(t)
	inv := m.Discover(t.Context())
	require.Equal(t, &device.Fabric{ClusterUUID: cluster, CliqueID: 32766}, inv.GPUs[0].Fabric)
	for _, i := range []int{1, 2, 3} {
		require.Nil(t, inv.GPUs[i].Fabric)
		require.Equal(t, i != 1, inv.GPUs[i].Health.Healthy, "without its fabric CUDA does not start")
	}
}

func TestWhatIsKnownOfAVirtualGPUIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t4x1")
	const config = "sys/bus/pci/devices/0000:00:1e.0/config"
	require.Nil(t, m.Discover(t.Context()).GPUs[0].VGPU)
	m.hostFile(t, config, strings.Repeat("\x00", 64))
	require.Equal(t, &device.VGPU{}, m.Discover(t.Context()).GPUs[0].VGPU, "unknown is asked again")
	require.NoError(t, os.Remove(filepath.Join(m.host, config)))
	require.Equal(t, &device.VGPU{}, m.Discover(t.Context()).GPUs[0].VGPU)
}
