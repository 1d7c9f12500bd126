package health_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/health"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/state"
)

const (
	gpu0 = "GPU-a"
	gpu1 = "GPU-b"
)

// node is a Monitor on a host tree of its own, with a clock that stands still.
type node struct {
	t     *testing.T
	roots roots.Roots
	data  state.DataDir
	inv   device.Inventory
	log   *bytes.Buffer
	now   time.Time
	*health.Monitor
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, roots: roots.Roots{Host: t.TempDir()}, data: state.DataDir(t.TempDir()), log: &bytes.Buffer{}, now: time.Now()}
	for i, uuid := range []string{gpu0, gpu1} {
		n.inv.GPUs = append(n.inv.GPUs, device.GPU{
			UUID: uuid, Index: i, Minor: i, PCIBusID: fmt.Sprintf("0000:0%d:00.0", i), Events: true, Health: device.Health{Healthy: true},
		})
		n.mkdir("sys/bus/pci/devices", n.inv.GPUs[i].PCIBusID)
	}
	n.mkdir("sys/module", "nvidia")
	n.boot("boot-1")
	n.start()
	return n
}

// start is a start of the program: only what was written down is known.
func (n *node) start(policy ...string) {
	n.t.Helper()
	p, err := health.ParsePolicy(policy)
	require.NoError(n.t, err)
	log := logrus.New()
	log.SetOutput(n.log)
	n.Monitor = health.New(health.Config{
		Roots: n.roots, Data: n.data, Policy: p, Quiet: time.Minute, Log: log, Now: func() time.Time { return n.now },
	})
}

// mkdir makes a sysfs directory that is another one each time: the old one is
// kept aside, so that its inode is not used again.
func (n *node) mkdir(dir, name string) {
	n.t.Helper()
	full := filepath.Join(n.roots.Host, dir, name)
	_ = os.Rename(full, filepath.Join(n.t.TempDir(), "old")) // there may be none
	require.NoError(n.t, os.MkdirAll(full, 0o755))
}

func (n *node) boot(id string) {
	n.t.Helper()
	dir := filepath.Join(n.roots.Host, "proc/sys/kernel/random")
	require.NoError(n.t, os.MkdirAll(dir, 0o755))
	require.NoError(n.t, os.WriteFile(filepath.Join(dir, "boot_id"), []byte(id+"\n"), 0o644))
}

func (n *node) xid(gpu string, number uint64) {
	n.XID(device.XID{GPU: gpu, Number: number, GPUInstance: -1, ComputeInstance: -1}, &n.inv)
}

// unhealthy lists the reasons of the devices that may not be used.
func (n *node) unhealthy() map[string]string {
	inv := n.Apply(n.inv)
	out := map[string]string{}
	for _, a := range inv.Allocatables() {
		if !a.Health.Healthy {
			out[a.UUID] = a.Health.Reason
		}
	}
	return out
}

func TestAnErrorOfAnApplicationLeavesTheCardInUse(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, xid := range []uint64{13, 31, 43, 45, 63, 94, 154} {
		n.xid(gpu0, xid)
	}
	require.Empty(t, n.unhealthy())
	require.NoFileExists(t, n.data.Faults())
}

func TestAFatalErrorCostsThatCardOnlyAndOutlivesARestart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.xid(gpu0, 79)
	want := map[string]string{gpu0: "the driver reported XID 79 (GPU has fallen off the bus); reboot the node"}
	require.Equal(t, want, n.unhealthy())
	n.start()
	require.Equal(t, want, n.unhealthy())
	n.now = n.now.Add(24 * time.Hour) // time mends nothing
	require.Equal(t, want, n.unhealthy())
}

func TestAResetThatWasSeenClearsWhatAskedForOne(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]func(*node){
		"driver loaded anew": func(n *node) { n.mkdir("sys/module", "nvidia") },
		"found on bus anew":  func(n *node) { n.mkdir("sys/bus/pci/devices", "0000:00:00.0") },
		"reboot":             func(n *node) { n.boot("boot-2") },
		"recovery action": func(n *node) {
			n.inv.GPUs[0].Recovery = device.RecoveryReset
			n.Apply(n.inv)
			n.inv.GPUs[0].Recovery = device.RecoveryNone
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.xid(gpu0, 95)
			n.start()
			require.Contains(t, n.unhealthy(), gpu0)
			reset(n)
			require.Empty(t, n.unhealthy())
			n.start()
			require.Empty(t, n.unhealthy(), "what was mended stays so")
		})
	}
}

func TestOnlyARebootClearsWhatAskedForOne(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.xid(gpu0, 79)
	n.mkdir("sys/module", "nvidia")
	n.mkdir("sys/bus/pci/devices", "0000:00:00.0")
	require.Contains(t, n.unhealthy(), gpu0)
	n.boot("boot-2")
	require.Empty(t, n.unhealthy())
}

func TestACardToBeLookedAtStaysOutUntilAnOperatorClearsIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.xid(gpu0, 54)
	n.boot("boot-2")
	require.Contains(t, n.unhealthy()[gpu0], "gpuctl uncordon")
	require.NoError(t, health.WriteCordons(n.data.Cordons(), health.Cordons{Cleared: map[string]string{gpu0: "mark-1"}}))
	require.Empty(t, n.unhealthy())
	n.xid(gpu0, 54)
	n.start()
	require.Contains(t, n.unhealthy(), gpu0, "a mark counts once")
}

func TestTheErrorComesBackAfterAReset(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.xid(gpu0, 95)
	n.mkdir("sys/module", "nvidia")
	require.Empty(t, n.unhealthy())
	n.xid(gpu0, 95)
	require.Contains(t, n.unhealthy(), gpu0)
}

func TestAnErrorOfOneMIGInstanceConcernsThatOne(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.inv.GPUs[0].MIGEnabled = true
	for i, gi := range []int{1, 2, 2} {
		n.inv.GPUs[0].MIGDevices = append(n.inv.GPUs[0].MIGDevices, device.MIGDevice{
			UUID: fmt.Sprintf("MIG-%d", i), GPUInstance: gi, ComputeInstance: i % 2, Health: device.Health{Healthy: true},
		})
	}
	for name, c := range map[string]struct {
		gi, ci int
		want   []string
	}{
		"the whole card":        {-1, -1, []string{"MIG-0", "MIG-1", "MIG-2"}},
		"a GPU instance":        {2, -1, []string{"MIG-1", "MIG-2"}},
		"a compute instance":    {2, 1, []string{"MIG-1"}},
		"one that is not known": {7, 0, []string{"MIG-0", "MIG-1", "MIG-2"}},
	} {
		n.start()
		n.XID(device.XID{GPU: gpu0, Number: 95, GPUInstance: c.gi, ComputeInstance: c.ci}, &n.inv)
		got := n.unhealthy()
		require.Len(t, got, len(c.want), name)
		for _, uuid := range c.want {
			require.Contains(t, got, uuid, name)
		}
		require.NoError(t, os.Remove(n.data.Faults()))
	}
}

func TestACardThatComesAndGoesIsWatchedBeforeItIsUsedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.inv.GPUs[0].Health = device.Health{Reason: "GPU is lost"}
	require.Equal(t, map[string]string{gpu0: "GPU is lost"}, n.unhealthy())
	n.inv.GPUs[0].Health = device.Health{Healthy: true}
	require.Contains(t, n.unhealthy()[gpu0], "watched for 1m0s")
	n.now = n.now.Add(50 * time.Second)
	require.Contains(t, n.unhealthy(), gpu0)
	n.inv.GPUs[0].Health = device.Health{Reason: "GPU is lost"}
	require.Contains(t, n.unhealthy(), gpu0)
	n.inv.GPUs[0].Health = device.Health{Healthy: true}
	require.Contains(t, n.unhealthy(), gpu0, "the watch begins anew")
	n.now = n.now.Add(time.Minute)
	require.Empty(t, n.unhealthy())
}

func TestACardWithoutEventsIsJudgedByItsCounters(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.inv.GPUs[0].Events = false
	n.inv.GPUs[0].ECCUncorrected, n.inv.GPUs[1].ECCUncorrected = 3, 3
	require.Empty(t, n.unhealthy(), "errors of before are no news, and no events are no fault")
	n.inv.GPUs[0].ECCUncorrected, n.inv.GPUs[1].ECCUncorrected = 4, 4
	require.Equal(t, map[string]string{
		gpu0: "its count of uncorrected memory errors grew from 3 to 4, and its driver reports no events; " +
			"drain the card and reset it (`nvidia-smi --gpu-reset`), or reboot the node",
	}, n.unhealthy())
}

func TestAnOperatorTakesACardOut(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	require.NoError(t, health.WriteCordons(n.data.Cordons(), health.Cordons{Cordoned: map[string]health.Cordon{gpu1: {Reason: "fan is loud"}}}))
	require.Equal(t, map[string]string{gpu1: "it is cordoned: fan is loud; `gpuctl uncordon GPU-b` ends that"}, n.unhealthy())
	require.NoError(t, os.WriteFile(n.data.Cordons(), []byte("{"), 0o644))
	require.Contains(t, n.unhealthy(), gpu1, "a file that cannot be read changes nothing")
	require.Contains(t, n.log.String(), "the cordons cannot be read")
	require.NoError(t, os.Remove(n.data.Cordons()))
	require.Empty(t, n.unhealthy())
}

func TestFaultsThatCannotBeReadAreKeptAsideAndTold(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.xid(gpu0, 95)
	require.NoError(t, os.Truncate(n.data.Faults(), 20))
	n.start()
	require.Contains(t, n.log.String(), "are not known")
	require.FileExists(t, n.data.Faults()+".unreadable")
}

func TestFaultsAreWrittenOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	parent := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(parent, nil, 0o644))
	n.data = state.DataDir(filepath.Join(parent, "data")) // cannot be made
	n.start()
	n.xid(gpu0, 95)
	require.Contains(t, n.unhealthy(), gpu0)
	require.NotEmpty(t, n.State().Trouble)
	require.NoError(t, os.Remove(parent))
	require.Contains(t, n.unhealthy(), gpu0)
	require.Empty(t, n.State().Trouble)
	require.FileExists(t, n.data.Faults())
}

func TestThePolicyCanBeChanged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start("94=reset", "79=ignore", "default=ignore")
	n.xid(gpu0, 94)
	n.xid(gpu1, 79)
	n.xid(gpu1, 31337)
	got := n.unhealthy()
	require.Contains(t, got, gpu0)
	require.NotContains(t, got, gpu1)
	for _, bad := range []string{"94", "94=explode", "x=reset", "=reset", "-1=reset"} {
		_, err := health.ParsePolicy([]string{bad})
		require.Error(t, err, bad)
		require.Contains(t, err.Error(), bad)
	}
}

func TestThePolicyReadsWhatItPrints(t *testing.T) {
	t.Parallel()
	p, err := health.ParsePolicy([]string{"94=reset"})
	require.NoError(t, err)
	again, err := health.ParsePolicy(p.Entries())
	require.NoError(t, err)
	require.Equal(t, p, again)
}

func FuzzParsePolicy(f *testing.F) {
	f.Add("94=reset")
	f.Add("default=ignore")
	f.Add("=")
	f.Fuzz(func(t *testing.T, entry string) {
		p, err := health.ParsePolicy([]string{entry})
		if err == nil {
			require.NotEmpty(t, p.Entries())
		}
	})
}
