package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/health"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
)

// slow makes the daemon look by itself so seldom that only a sign can be what
// it acts upon.
func (b *bench) slow() { b.cfg.DiscoverInterval, b.cfg.RetryInterval = time.Hour, time.Hour }

func offers(want map[string][]string) func(*fakekubelet.View) bool {
	return func(v *fakekubelet.View) bool {
		for resource := range v.Offered {
			if _, wanted := want[resource]; !wanted && len(v.Allocatable(resource)) > 0 {
				return false
			}
		}
		for resource, ids := range want {
			got := v.Allocatable(resource)
			if len(got) != len(ids) {
				return false
			}
			for i := range ids {
				if got[i] != ids[i] {
					return false
				}
			}
		}
		return true
	}
}

// withNVML has the cards come from the fake library.
func (b *bench) withNVML(profile string) (config fakelib.Config, write func()) {
	b.t.Helper()
	dir := b.t.TempDir()
	library, machine := filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "machine.json")
	require.NoError(b.t, fakelib.Build(b.t.Context(), library))
	config, err := fakelib.Load(profile)
	require.NoError(b.t, err)
	write = func() { require.NoError(b.t, config.Write(machine)) }
	write()
	b.cfg.Inventory, b.cfg.NVMLLibrary = "", library
	b.t.Setenv("NRI_GPU_FAKE_NVML_CONFIG", machine)
	return config, write
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func TestAnXIDIsInTheListWithoutALookAtTheNode(t *testing.T) {
	b := newBench(t)
	config, write := b.withNVML("a100x8")
	b.slow()
	b.start()
	b.kubelet.Wait("eight cards", healthy(8))
	uuid, ok := config.Device(3)["uuid"].(string)
	require.True(t, ok)
	config["xids"] = []any{map[string]any{"seq": 1, "gpu": uuid, "xid": 31}, map[string]any{"seq": 2, "gpu": uuid, "xid": 79}}
	write()
	b.kubelet.Wait("seven of eight", func(v *fakekubelet.View) bool { return v.Healthy() == 7 && v.Devices[uuid] == "Unhealthy" })
	b.ready()
	_, metrics := b.get("/metrics")
	require.Contains(t, metrics, `nri_gpu_deviceplugin_xids_total{action="reboot",gpu="`+uuid+`",xid="79"} 1`)
	require.Contains(t, metrics, `nri_gpu_deviceplugin_xids_total{action="restart-app",gpu="`+uuid+`",xid="31"} 1`)
	require.Contains(t, metrics, `nri_gpu_deviceplugin_card_healthy{device="`+uuid+`",reason="the driver reported XID 79 (GPU has fallen off the bus); reboot the node"} 0`)
	_, state := b.get("/debug/state")
	require.Contains(t, state, "GPU has fallen off the bus")
	faults, err := health.ReadFaults(b.cfg.Data().Faults())
	require.NoError(t, err)
	require.Len(t, faults, 1)
}

// An XID of a card outlives a restart within one boot.
func TestACardThatFellOffTheBusIsStillOutAfterARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	earlier := health.New(health.Config{Roots: b.cfg.Roots(), Data: b.cfg.Data(), Policy: b.cfg.xidPolicy(), Log: quiet()})
	earlier.XID(device.XID{GPU: "GPU-1", Number: 79, GPUInstance: -1, ComputeInstance: -1}, &b.inv)
	b.start()
	b.kubelet.Wait("one of two", func(v *fakekubelet.View) bool { return v.Healthy() == 1 && len(v.Devices) == 2 })
}

func TestACordonIsHeededAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slow()
	b.start()
	b.kubelet.Wait("two cards", healthy(2))
	require.NoError(t, health.WriteCordons(b.cfg.Data().Cordons(), health.Cordons{Cordoned: map[string]health.Cordon{"GPU-0": {Reason: "test"}}}))
	b.kubelet.Wait("one of two", offers(map[string][]string{"nvidia.com/gpu": {"GPU-1"}}))
	require.NoError(t, os.Remove(b.cfg.Data().Cordons()))
	b.kubelet.Wait("two again", healthy(2))
}

const (
	twoReplicas = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
	renamed     = "version: v1\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
)

// configMap is a directory as the kubelet mounts a ConfigMap: a file that is a
// link through ..data, which is switched.
type configMap struct {
	t   *testing.T
	dir string
	n   int
}

func (m *configMap) set(text string) {
	m.t.Helper()
	m.n++
	version := filepath.Join(m.dir, "..v"+string(rune('a'+m.n)))
	require.NoError(m.t, os.MkdirAll(version, 0o755))
	require.NoError(m.t, os.WriteFile(filepath.Join(version, "config.yaml"), []byte(text), 0o644))
	require.NoError(m.t, os.Symlink(filepath.Base(version), filepath.Join(m.dir, "..data_tmp")))
	require.NoError(m.t, os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")))
	if m.n == 1 {
		require.NoError(m.t, os.Symlink("..data/config.yaml", filepath.Join(m.dir, "config.yaml")))
	}
}

// Only the label that chose a ConfigMap was watched by another plugin, and not
// its content.
func TestAConfigMapThatIsEditedTakesEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.slow()
	m := &configMap{t: t, dir: t.TempDir()}
	m.set(twoReplicas)
	b.cfg.ConfigFile = filepath.Join(m.dir, "config.yaml")
	b.start()
	b.kubelet.Wait("four replicas", offers(map[string][]string{"nvidia.com/gpu": {"GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"}}))
	m.set(renamed)
	b.kubelet.Wait("four replicas under the other name, and none under the first", offers(map[string][]string{"nvidia.com/gpu.shared": {"GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"}}))
	b.ready()

	m.set("version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replica: 3}]}}\n")
	require.Eventually(t, func() bool {
		_, state := b.get("/debug/state")
		return b.kubelet.Now().Offered != nil && containsAll(state, "field replica not found", `"generation": 2`)
	}, 10*time.Second, 10*time.Millisecond)
	require.Len(t, b.kubelet.Now().Allocatable("nvidia.com/gpu.shared"), 4, "the one before stays in force")
	m.set("version: v1\n")
	b.kubelet.Wait("whole cards", offers(map[string][]string{"nvidia.com/gpu": {"GPU-0", "GPU-1"}}))
}

func TestAConfigurationThatCannotBeReadIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.ConfigFile = filepath.Join(t.TempDir(), "config.yaml")
	require.ErrorContains(t, run(t.Context(), b.cfg, quiet()), b.cfg.ConfigFile)
	require.NoError(t, os.WriteFile(b.cfg.ConfigFile, []byte("version: v9"), 0o644))
	require.ErrorContains(t, run(t.Context(), b.cfg, quiet()), `version "v9" is not known`)
}

// A MIG layout that was changed needed a restart of another plugin, and left
// resources behind that nobody served.
func TestAMIGLayoutIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.MIGStrategy = "mixed"
	b.start()
	b.kubelet.Wait("whole cards", offers(map[string][]string{"nvidia.com/gpu": {"GPU-0", "GPU-1"}}))

	instance := func(uuid, profile string, gi int) device.MIGDevice {
		return device.MIGDevice{UUID: uuid, Profile: profile, GPUInstance: gi, GPUInstanceMinor: 10 + gi, ComputeInstanceMinor: 20 + gi, Health: device.Health{Healthy: true}}
	}
	b.inv.GPUs[0].MIGEnabled = true
	b.inv.GPUs[0].MIGDevices = []device.MIGDevice{instance("MIG-a", "3g.20gb", 1), instance("MIG-b", "3g.20gb", 2)}
	require.NoError(t, fakehost.Make(b.cfg.Roots(), b.inv))
	b.writeInventory()
	b.kubelet.Wait("MIG devices beside a card", offers(map[string][]string{"nvidia.com/gpu": {"GPU-1"}, "nvidia.com/mig-3g.20gb": {"MIG-a", "MIG-b"}}))

	b.inv.GPUs[0].MIGDevices = []device.MIGDevice{instance("MIG-a", "3g.20gb", 1), instance("MIG-c", "1g.5gb", 3)}
	require.NoError(t, fakehost.Make(b.cfg.Roots(), b.inv))
	b.writeInventory()
	b.kubelet.Wait("another layout", offers(map[string][]string{
		"nvidia.com/gpu": {"GPU-1"}, "nvidia.com/mig-3g.20gb": {"MIG-a"}, "nvidia.com/mig-1g.5gb": {"MIG-c"},
	}))

	b.inv.GPUs[0].MIGEnabled, b.inv.GPUs[0].MIGDevices = false, nil
	b.writeInventory()
	b.kubelet.Wait("whole cards again", offers(map[string][]string{"nvidia.com/gpu": {"GPU-0", "GPU-1"}}))
}

// A program whose device cgroup was set anew called every card unhealthy in
// another plugin.
func TestAProgramThatLostItsOwnAccessSaysThatAndLeavesTheListAlone(t *testing.T) {
	b := newBench(t)
	config, write := b.withNVML("t4x1")
	b.start()
	b.kubelet.Wait("the card", healthy(1))
	// On a file system without devices open(2) answers EACCES, as it answers
	// EPERM where a device cgroup forbids it.
	over := b.cfg.Roots().DevPath("/dev")
	require.NoError(t, unix.Mount("none", over, "tmpfs", unix.MS_NODEV, ""))
	t.Cleanup(func() { _ = unix.Unmount(over, unix.MNT_DETACH) })
	require.NoError(t, unix.Mknod(filepath.Join(over, "nvidiactl"), unix.S_IFCHR|0o666, int(unix.Mkdev(195, 255))))
	config["fail"] = map[string]any{"nvmlDeviceGetCount_v2": 4}
	write()
	b.notReady("this program has lost its own access to the driver")
	require.Equal(t, 1, b.kubelet.Now().Healthy())
	delete(config, "fail")
	write()
	require.NoError(t, unix.Unmount(over, unix.MNT_DETACH))
	b.ready()
}

// What lies below /run may be removed under a running daemon.
func TestAStateDirectoryThatIsWipedIsFilledAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	b.kubelet.Wait("two cards", healthy(2))
	require.NoError(t, os.RemoveAll(b.cfg.StateDir))
	require.Eventually(t, func() bool {
		_, err := os.Stat(b.cfg.State().Inventory())
		_, lock := os.Stat(b.cfg.State().Lock("gpu-device-plugin"))
		return err == nil && lock == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.ErrorContains(t, run(t.Context(), b.cfg, quiet()), "another instance")
	b.ready()
}
