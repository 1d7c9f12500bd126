package mps

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestStartsSetsTheLimitsAndStopsWithoutATrace(t *testing.T) {
	t.Parallel()
	b := newBench(t).run(gpus(gpu, 4, "GPU-0", "GPU-1"))
	status := b.ready(gpu)
	require.Empty(t, status.Reason)
	require.Equal(t, 1, status.Starts)
	require.NotZero(t, status.Since)
	require.True(t, status.Serves("GPU-1"))
	require.Equal(t, []Status{status}, b.m.Statuses())

	base := filepath.Join(b.root(), "nvidia.com_gpu", status.Epoch)
	daemon := b.daemon("GPU-0,GPU-1")
	require.Equal(t, map[string]string{
		"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1", "CUDA_MPS_PIPE_DIRECTORY": base + "/pipe", "CUDA_MPS_LOG_DIRECTORY": base + "/log",
	}, daemon.Env)
	var limits [][]string
	for _, c := range b.calls("command") {
		if len(c.Args) > 1 {
			limits = append(limits, c.Args)
		}
	}
	require.Equal(t, [][]string{
		{"set_default_device_pinned_mem_limit", "0", "4096M"},
		{"set_default_device_pinned_mem_limit", "1", "4096M"},
		{"set_default_active_thread_percentage", "25"},
	}, limits)
	b.requireModes("GPU-0 EXCLUSIVE_PROCESS", "GPU-1 EXCLUSIVE_PROCESS")

	edits, required, err := b.m.ContainerEdits(gpu)
	require.NoError(t, err)
	require.Equal(t, []string{"CUDA_MPS_PIPE_DIRECTORY=" + base + "/pipe"}, edits.Env)
	require.Equal(t, []string{base + "/pipe"}, required, "/dev/shm is not required")
	require.Len(t, edits.Mounts, 2)
	require.Equal(t, [2]string{base + "/pipe", base + "/pipe"}, [2]string{edits.Mounts[0].HostPath, edits.Mounts[0].ContainerPath})
	require.Equal(t, "/dev/shm", edits.Mounts[1].ContainerPath)
	var pipe, shm, host unix.Stat_t
	require.NoError(t, unix.Stat(base+"/pipe", &pipe))
	require.NoError(t, unix.Stat(edits.Mounts[1].HostPath, &shm))
	require.NoError(t, unix.Stat("/dev/shm", &host))
	require.EqualValues(t, 0o755, pipe.Mode&0o7777)
	require.EqualValues(t, 0o1777, shm.Mode&0o7777)
	require.Equal(t, shm.Ino, daemon.ShmInode, "daemon and client have one /dev/shm")
	require.NotEqual(t, host.Dev, shm.Dev, "which is not the host's")

	b.stop()
	b.nothingLeft()
	b.requireModes("GPU-0 EXCLUSIVE_PROCESS", "GPU-1 EXCLUSIVE_PROCESS", "GPU-0 DEFAULT", "GPU-1 DEFAULT")
	commands := b.calls("command")
	require.Equal(t, []string{"quit"}, commands[len(commands)-1].Args)
	status, _ = b.m.Status(gpu)
	require.False(t, status.Ready)
	require.Equal(t, "its MPS daemon was stopped", status.Reason)
}

// requireModes compares all calls of nvidia-smi.
func (b *bench) requireModes(want ...string) {
	b.t.Helper()
	var got []string
	for _, c := range b.calls("nvidia-smi") {
		got = append(got, c.Args[0]+" "+c.Args[1])
	}
	require.Equal(b.t, want, got)
}

func TestADaemonThatRefusesIsReportedAndTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.fake.Refuse("GPU-0", true))
	b.run(gpus(gpu, 2, "GPU-0"))
	status := b.wait(gpu, "several tries", func(s Status) bool { return s.Starts >= 3 && s.Epoch == "" })
	require.False(t, status.Ready)
	require.Contains(t, status.Reason, "its MPS daemon ended (exit status 1): An instance of this daemon is already running; it is started again in ")
	_, _, err := b.m.ContainerEdits(gpu)
	var notReady *NotReadyError
	require.ErrorAs(t, err, &notReady)
	require.NoError(t, b.fake.Refuse("GPU-0", false))
	b.ready(gpu)
}

func TestADaemonThatDiesIsReplacedUnderANewEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t).run(gpus(gpu, 2, "GPU-0"))
	first := b.ready(gpu)
	pipe := b.pipe()
	daemon, server := b.daemon("GPU-0").PID, b.calls("nvidia-cuda-mps-server")[0].PID
	require.NoError(t, b.fake.Refuse("GPU-0", true)) // so that what is between can be seen
	require.NoError(t, unix.Kill(daemon, unix.SIGKILL))
	died := b.after(first)
	require.False(t, died.Ready)
	require.Equal(t, first.Epoch, died.Epoch)
	between := b.after(died)
	require.Empty(t, between.Epoch)
	require.Contains(t, between.Reason, "its MPS daemon ended (")
	require.Greater(t, between.Since, first.Since)
	_, _, err := b.m.ContainerEdits(gpu)
	require.ErrorContains(t, err, "its MPS daemon ended (")
	require.False(t, b.alive(server), "the server that outlived its daemon is ended")
	require.NoDirExists(t, filepath.Dir(pipe))

	require.NoError(t, b.fake.Refuse("GPU-0", false))
	second := b.ready(gpu)
	require.NotEqual(t, first.Epoch, second.Epoch)
	require.NotEqual(t, pipe, b.pipe(), "a container of the old daemon is told by its mount")
	require.DirExists(t, b.pipe())
}

func TestADaemonThatHangsIsReportedKilledAndReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Timing.Answer, c.Timing.Start = patience/30, patience/10 }).run(gpus(gpu, 2, "GPU-0"))
	first := b.ready(gpu)
	daemon := b.daemon("GPU-0").PID
	require.NoError(t, b.fake.Hang("GPU-0", true))
	missed := b.after(first)
	require.False(t, missed.Ready)
	require.Equal(t, first.Epoch, missed.Epoch, "the first miss is reported, and costs no client its work")
	require.Contains(t, missed.Reason, `(1 of 2 before it is replaced): ask the MPS daemon to "get_default_active_thread_percentage": no answer within 2s`)
	b.wait(gpu, "the end of the epoch", func(s Status) bool { return s.Epoch != first.Epoch })
	require.False(t, b.alive(daemon))
	require.NoError(t, b.fake.Hang("GPU-0", false))
	require.NotEqual(t, first.Epoch, b.ready(gpu).Epoch)
}

func TestADaemonThatAnswersAgainKeepsItsClients(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Timing.Answer, c.Timing.Misses = patience/30, 1000 }).run(gpus(gpu, 2, "GPU-0"))
	first := b.ready(gpu)
	require.NoError(t, b.fake.Hang("GPU-0", true))
	b.wait(gpu, "not ready", func(s Status) bool { return !s.Ready })
	require.NoError(t, b.fake.Hang("GPU-0", false))
	again := b.ready(gpu)
	require.Equal(t, first.Epoch, again.Epoch)
	require.Equal(t, first.Starts, again.Starts)
	require.Greater(t, again.Since, first.Since)
}

func TestADaemonThatWaitsForItsClientsIsKilledInTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Timing.Stop = patience / 60 }).run(gpus(gpu, 2, "GPU-0"))
	b.ready(gpu)
	require.NoError(t, b.fake.HaveClients("GPU-0", true))
	b.stop()
	b.nothingLeft()
	b.requireModes("GPU-0 EXCLUSIVE_PROCESS", "GPU-0 DEFAULT")
}

func TestResourcesAreIndependent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.fake.Refuse("GPU-1", true))
	b.run(gpus("nvidia.com/a", 2, "GPU-0"), gpus("nvidia.com/b", 2, "GPU-1"), gpus("nvidia.com/c", 2, "GPU-2"))
	a, c := b.ready("nvidia.com/a"), b.ready("nvidia.com/c")
	b.wait("nvidia.com/b", "several tries", func(s Status) bool { return s.Starts >= 2 })
	require.NoError(t, unix.Kill(b.daemon("GPU-2").PID, unix.SIGKILL))
	b.wait("nvidia.com/c", "a new epoch", func(s Status) bool { return s.Ready && s.Epoch != c.Epoch })
	now, _ := b.m.Status("nvidia.com/a")
	require.Equal(t, a, now)
	require.Len(t, b.m.Statuses(), 3)
}

func TestSetReplacesWhatIsAnotherAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Timing.Stop = patience / 60 }).run(gpus("nvidia.com/a", 2, "GPU-0"), gpus("nvidia.com/b", 2, "GPU-1", "GPU-2"))
	a, old := b.ready("nvidia.com/a"), b.ready("nvidia.com/b")
	// A card moves to another resource, and the daemon that has it takes its time.
	require.NoError(t, b.fake.HaveClients("GPU-1,GPU-2", true))
	b.m.Set(b.programs(), []Resource{gpus("nvidia.com/a", 2, "GPU-0"), gpus("nvidia.com/b", 2, "GPU-1"), gpus("nvidia.com/c", 3, "GPU-2")})
	b.wait("nvidia.com/b", "a new epoch", func(s Status) bool { return s.Ready && s.Epoch != old.Epoch })
	b.ready("nvidia.com/c")
	require.False(t, b.alive(b.daemon("GPU-1,GPU-2").PID), "two daemons never have one card")
	last := map[string]string{}
	for _, c := range b.calls("nvidia-smi") {
		last[c.Args[0]] = c.Args[1]
	}
	require.Equal(t, map[string]string{"GPU-0": "EXCLUSIVE_PROCESS", "GPU-1": "EXCLUSIVE_PROCESS", "GPU-2": "EXCLUSIVE_PROCESS"}, last,
		"the old daemon gave its cards back before the new ones took them")
	now, _ := b.m.Status("nvidia.com/a")
	require.Equal(t, a, now)

	// Another driver: every daemon is an old one.
	programs := b.programs()
	programs.Version = "580.65.06"
	b.m.Set(programs, []Resource{gpus("nvidia.com/a", 2, "GPU-0")})
	b.wait("nvidia.com/a", "a new epoch", func(s Status) bool { return s.Ready && s.Epoch != a.Epoch })
	_, known := b.m.Status("nvidia.com/b")
	require.False(t, known)
	_, _, err := b.m.ContainerEdits("nvidia.com/b")
	require.ErrorContains(t, err, "it is not shared by MPS here")
}

func TestWithoutProgramsTheReasonSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	b := newBench(t).run()
	b.m.Set(Programs{Control: b.programs().Control}, []Resource{gpus(gpu, 2, "GPU-0")})
	status := b.wait(gpu, "a reason", explained)
	require.Contains(t, status.Reason, "the driver root has no nvidia-")
	b.m.Set(b.programs(), []Resource{gpus(gpu, 2, "GPU-0")})
	b.ready(gpu)
}

func TestARootThatIsTooLongForSocketsIsExplained(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Root += strings.Repeat("-long", 10) })
	b.run(gpus(gpu, 2, "GPU-0"))
	status := b.wait(gpu, "a reason", explained)
	require.Contains(t, status.Reason, "choose a shorter root")
}

// explained tells whether a resource was tried, and is not served for a reason.
func explained(s Status) bool { return s.Epoch == "" && strings.Contains(s.Reason, "started again") }
