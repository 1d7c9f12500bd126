package nvml_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
)

const gpuDeadline = 300 * time.Millisecond

// TestMain is also the worker: the test binary runs itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == nvml.WorkerCommand {
		if err := nvml.Serve(os.Args[2], gpuDeadline, os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	library = filepath.Join(dir, "libnvidia-ml.so.1")
	if err := fakelib.Build(context.Background(), library); err != nil {
		panic(err)
	}
	m.Run()
}

var library string

// machine is a node with the fake library and a host tree of its own.
type machine struct {
	*nvml.Discoverer
	config fakelib.Config
	path   string
	host   string
}

func newMachine(t *testing.T, profile string) *machine {
	t.Helper()
	config, err := fakelib.Load(profile)
	require.NoError(t, err)
	m := &machine{config: config, path: filepath.Join(t.TempDir(), "fake.json"), host: t.TempDir()}
	m.write(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	m.Discoverer = nvml.New(nvml.Options{
		Roots:    roots.Roots{Host: m.host},
		Library:  func() (string, error) { return library, nil },
		Command:  []string{"/usr/bin/env", "NRI_GPU_FAKE_NVML_CONFIG=" + m.path, exe, nvml.WorkerCommand},
		Deadline: 3 * time.Second,
	})
	t.Cleanup(m.Close)
	return m
}

func (m *machine) write(t *testing.T) {
	t.Helper()
	require.NoError(t, m.config.Write(m.path))
}

// until takes snapshots until one is as wanted; the library looks at its file
// every 200 ms.
func (m *machine) until(t *testing.T, what string, ok func(device.Inventory) bool) device.Inventory {
	t.Helper()
	var inv device.Inventory
	require.Eventually(t, func() bool { inv = m.Discover(t.Context()); return ok(inv) }, 10*time.Second, 20*time.Millisecond, what)
	return inv
}

func (m *machine) hostFile(t *testing.T, path, content string) {
	t.Helper()
	full := filepath.Join(m.host, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, []byte(content), 0o644))
}

func TestEightA100sAreDescribedWithTheirLinks(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	m.hostFile(t, "sys/bus/pci/devices/0000:07:00.0/numa_node", "3\n")
	m.hostFile(t, "sys/bus/pci/devices/0000:07:00.0/class", "0x030200\n")
	m.hostFile(t, "sys/bus/pci/devices/0000:07:00.0/config", strings.Repeat("\x00", 64))
	m.hostFile(t, "sys/bus/pci/devices/0000:07:00.0/drm/card1/dev", "")
	m.hostFile(t, "sys/bus/pci/devices/0000:07:00.0/drm/renderD128/dev", "")
	m.hostFile(t, "sys/bus/pci/devices/0000:07:00.0/drm/controlD65/dev", "")

	inv := m.Discover(t.Context())
	require.Equal(t, device.Driver{State: device.DriverReady, Version: "535.309.01", CUDAVersion: "12.2"}, inv.Driver)
	require.Len(t, inv.GPUs, 8)
	require.Equal(t, device.GPU{
		UUID: "GPU-a1000000-0000-4000-8000-000000000000", Index: 0, Minor: 0, PCIBusID: "0000:07:00.0", Model: "NVIDIA A100-SXM4-40GB",
		MemoryBytes: 40 << 30, ComputeCapability: "8.0", Architecture: "ampere", NUMANode: 3,
		DRMNodes: []string{"card1", "renderD128"}, PCIClass: "0x030200", VGPU: &device.VGPU{}, MIGCapable: new(true),
		Events: true, Health: device.Health{Healthy: true},
	}, inv.GPUs[0])
	require.Len(t, inv.Links, 8*7/2)
	require.Equal(t, 12, inv.Links[0].NVLinks)
	require.Equal(t, device.PCIeSameNode, inv.Links[0].PCIe)
	require.Equal(t, device.PCIeSystem, inv.Links[6].PCIe)
}

func TestIndexMinorAndBusOrderAreKeptApart(t *testing.T) {
	t.Parallel()
	inv := newMachine(t, "mixed").Discover(t.Context())
	require.Len(t, inv.GPUs, 12)
	require.Equal(t, 11, inv.GPUs[11].Index)
	require.Equal(t, 10, inv.GPUs[11].Minor)
	require.Equal(t, "Tesla T4", inv.GPUs[1].Model)
}

func TestMIGDevicesHaveTheirCapabilityMinors(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h100x8-mig")
	m.hostFile(t, "proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
	m.hostFile(t, "proc/driver/nvidia/capabilities/gpu0/mig/gi5/access", "DeviceFileMinor: 48\nDeviceFileMode: 292\n")
	m.hostFile(t, "proc/driver/nvidia/capabilities/gpu0/mig/gi5/ci0/access", "DeviceFileMinor: 49\n")

	inv := m.Discover(t.Context())
	require.True(t, inv.GPUs[0].MIGEnabled)
	require.Len(t, inv.GPUs[0].MIGDevices, 3)
	first, second, third := inv.GPUs[0].MIGDevices[0], inv.GPUs[0].MIGDevices[1], inv.GPUs[0].MIGDevices[2]
	require.Equal(t, "3g.40gb", first.Profile)
	require.Equal(t, []int{12, 13}, []int{first.GPUInstanceMinor, first.ComputeInstanceMinor})
	require.True(t, first.Health.Healthy)
	require.Equal(t, []int{48, 49}, []int{second.GPUInstanceMinor, second.ComputeInstanceMinor})
	require.False(t, third.Health.Healthy)
	require.Contains(t, third.Health.Reason, "mig-minors")
	require.False(t, inv.GPUs[2].MIGEnabled)
}

func TestADriverThatCannotServeIsAStateWithAReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail map[string]any
		want device.DriverState
	}{
		"not loaded":          {map[string]any{"nvmlInit_v2": 9}, device.DriverNotLoaded},
		"another version":     {map[string]any{"nvmlInit_v2": 18}, device.DriverVersionMismatch},
		"an unknown error":    {map[string]any{"nvmlInit_v2": 999}, device.DriverFailed},
		"no count":            {map[string]any{"nvmlDeviceGetCount_v2": 999}, device.DriverFailed},
		"it is lost at count": {map[string]any{"nvmlDeviceGetCount_v2": 9}, device.DriverNotLoaded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "t4x1")
			m.config["fail"] = c.fail
			m.write(t)
			inv := m.Discover(t.Context())
			require.Equal(t, c.want, inv.Driver.State)
			require.NotEmpty(t, inv.Driver.Reason)
			require.Empty(t, inv.GPUs)

			delete(m.config, "fail")
			m.write(t)
			m.until(t, "it recovers", func(inv device.Inventory) bool {
				return inv.Driver.State == device.DriverReady && len(inv.GPUs) == 1
			})
		})
	}
}

func TestZeroGPUsIsNotAnError(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t4x1")
	m.config["devices"] = []any{}
	m.write(t)
	require.Equal(t, device.DriverNoDevices, m.Discover(t.Context()).Driver.State)
}

func TestALostGPUCostsItselfOnlyAndKeepsItsName(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	before := m.Discover(t.Context())
	m.config.Device(3)["health"] = "lost"
	m.write(t)
	inv := m.until(t, "it is unhealthy", func(inv device.Inventory) bool {
		return len(inv.GPUs) == 8 && !inv.GPUs[3].Health.Healthy
	})
	require.Equal(t, before.GPUs[3].UUID, inv.GPUs[3].UUID)
	require.Equal(t, before.GPUs[3].Minor, inv.GPUs[3].Minor)
	require.Contains(t, inv.GPUs[3].Health.Reason, "nvmlDeviceGetHandleByIndex")
	require.True(t, inv.GPUs[4].Health.Healthy)

	m.config.Device(3)["health"] = "ok"
	m.write(t)
	m.until(t, "it is healthy again", func(inv device.Inventory) bool { return len(inv.GPUs) == 8 && inv.GPUs[3].Health.Healthy })
}

func TestAGPUThatWasLostBeforeTheStartIsNamedByProcfs(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	m.config.Device(3)["health"] = "init_error"
	m.write(t)
	m.hostFile(t, "proc/driver/nvidia/gpus/0000:4e:00.0/information",
		"Model: \t\t NVIDIA A100-SXM4-40GB\nGPU UUID: \t GPU-a1000000-0000-4000-8000-000000000003\nBus Location: \t 0000:4e:00.0\nDevice Minor: \t 3\n")
	inv := m.Discover(t.Context())
	require.Len(t, inv.GPUs, 8)
	require.Equal(t, "GPU-a1000000-0000-4000-8000-000000000003", inv.GPUs[3].UUID)
	require.Equal(t, 3, inv.GPUs[3].Minor)
	require.False(t, inv.GPUs[3].Health.Healthy)
}

func TestAGPUThatHangsCostsItselfOnly(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	before := m.Discover(t.Context())
	m.config.Device(5)["delay_ms"] = map[string]any{"nvmlDeviceGetMemoryInfo": 60000}
	m.write(t)
	inv := m.until(t, "it is unhealthy", func(inv device.Inventory) bool {
		return len(inv.GPUs) == 8 && !inv.GPUs[5].Health.Healthy
	})
	require.Equal(t, before.GPUs[5].UUID, inv.GPUs[5].UUID)
	require.Contains(t, inv.GPUs[5].Health.Reason, "did not answer")
	require.True(t, inv.GPUs[4].Health.Healthy)

	delete(m.config.Device(5), "delay_ms")
	m.write(t)
	m.until(t, "a new worker finds it healthy", func(inv device.Inventory) bool { return len(inv.GPUs) == 8 && inv.GPUs[5].Health.Healthy })
}

func TestADriverThatHangsIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t4x1")
	m.config["delay_ms"] = map[string]any{"nvmlInit_v2": 60000}
	m.write(t)
	inv := m.Discover(t.Context())
	require.Equal(t, device.DriverHung, inv.Driver.State)
	require.Contains(t, inv.Driver.Reason, "kernel log")

	delete(m.config, "delay_ms")
	m.write(t)
	require.Equal(t, device.DriverReady, m.Discover(t.Context()).Driver.State)
}

func TestAnUpgradedDriverIsLoadedAnew(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t4x1")
	m.hostFile(t, "sys/module/nvidia/version", "535.309.01\n")
	require.Equal(t, "535.309.01", m.Discover(t.Context()).Driver.Version)
	m.hostFile(t, "sys/module/nvidia/version", "550.1.1\n")
	m.config["driver_version"] = "550.1.1"
	m.write(t)
	require.Equal(t, "550.1.1", m.Discover(t.Context()).Driver.Version, "a new worker reads it at once")
}

func TestAMissingLibraryDependsOnThePCIBus(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t4x1")
	missing := nvml.New(nvml.Options{
		Roots:   roots.Roots{Host: m.host},
		Library: func() (string, error) { return "", fmt.Errorf("no libnvidia-ml.so.1 below /x: %w", fs.ErrNotExist) },
	})
	require.Equal(t, device.DriverNoDevices, missing.Discover(t.Context()).Driver.State)
	m.hostFile(t, "sys/bus/pci/devices/0000:00:1e.0/vendor", "0x10de\n")
	m.hostFile(t, "sys/bus/pci/devices/0000:00:1e.0/class", "0x030200\n")
	inv := missing.Discover(t.Context())
	require.Equal(t, device.DriverLibraryMissing, inv.Driver.State)
	require.Contains(t, inv.Driver.Reason, "install the NVIDIA driver")
}

func TestAFileThatIsNoLibraryIsReported(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t4x1")
	bad := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	require.NoError(t, os.WriteFile(bad, []byte("not ELF"), 0o644))
	exe, err := os.Executable()
	require.NoError(t, err)
	d := nvml.New(nvml.Options{
		Roots: roots.Roots{Host: m.host}, Library: func() (string, error) { return bad, nil }, Command: []string{exe, nvml.WorkerCommand},
	})
	defer d.Close()
	require.Equal(t, device.DriverLibraryMissing, d.Discover(t.Context()).Driver.State)
}
