package mps

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

func TestWhatAKilledPredecessorLeftIsClearedAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// The predecessor, another process, serves nvidia.com/gpu with two cards.
	predecessor := exec.Command(os.Args[0])
	predecessor.Env = append(os.Environ(), managerDir+"="+b.dir)
	require.NoError(t, predecessor.Start())
	stop := func() {
		_ = predecessor.Process.Kill()
		_ = predecessor.Wait()
	}
	defer stop()
	b.eventually("the predecessor's daemon", func() bool {
		return len(b.calls("command")) > 4 // its limits are set, and it was asked for them
	})
	stop()
	daemon, server := b.daemon("GPU-0,GPU-1"), b.calls("nvidia-cuda-mps-server")[0].PID
	require.True(t, b.alive(daemon.PID), "the daemon outlives its parent")

	// A client of that daemon has its pipe directory in the environment too.
	pipe := "CUDA_MPS_PIPE_DIRECTORY=" + daemon.Env["CUDA_MPS_PIPE_DIRECTORY"]
	client := exec.Command(filepath.Join(b.dir, "nvidia-cuda-mps-server"))
	client.Env = []string{pipe}
	require.NoError(t, client.Start())
	defer func() {
		_ = client.Process.Kill()
		_ = client.Wait()
	}()

	foreign := filepath.Join(b.root(), "some_body", "else")
	require.NoError(t, os.MkdirAll(foreign, 0o755))

	// The successor serves another resource with one of the cards.
	b.run(gpus("nvidia.com/shared", 2, "GPU-1"))
	b.ready("nvidia.com/shared")
	b.gone(daemon.PID)
	b.gone(server)
	require.NoDirExists(t, filepath.Join(b.root(), "nvidia.com_gpu"))
	left, err := filepath.Glob(filepath.Join(b.root(), "shm", "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "shared memory of the present epoch and of no other")
	b.requireModes("GPU-0 EXCLUSIVE_PROCESS", "GPU-1 EXCLUSIVE_PROCESS", "GPU-0 DEFAULT", "GPU-1 DEFAULT", "GPU-1 EXCLUSIVE_PROCESS")
	require.True(t, b.alive(client.Process.Pid), "a client is not ours to end")
	require.DirExists(t, foreign)
	require.NoError(t, os.RemoveAll(filepath.Dir(foreign)))
}

// eventually polls what tells nobody of its changes.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	require.Eventually(b.t, ok, patience, 10*time.Millisecond, what)
}

func TestALostCardCostsItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.fake.FailSMI("GPU-0", true))
	require.NoError(t, b.fake.HaveClients("GPU-1", true))
	b.run(gpus(gpu, 4, "GPU-0", "GPU-1"))
	without := b.ready(gpu)
	require.Equal(t, []string{"GPU-0"}, without.Without)
	require.False(t, without.Serves("GPU-0"))
	require.True(t, without.Serves("GPU-1"))
	for _, c := range b.calls("command") {
		require.NotEqual(t, []string{"set_default_device_pinned_mem_limit", "1", "4096M"}, c.Args, "the other card is the daemon's first")
	}

	// It is back, and the clients of the other card go on.
	require.NoError(t, b.fake.FailSMI("GPU-0", false))
	asked := func() (n int) {
		for _, c := range b.calls("command") {
			if c.Args[0] == "get_server_list" {
				n++
			}
		}
		return n
	}
	b.eventually("two looks for clients", func() bool { return asked() >= 2 })
	now, _ := b.m.Status(gpu)
	require.Equal(t, without, now)

	require.NoError(t, b.fake.HaveClients("GPU-1", false))
	with := b.wait(gpu, "both cards", func(s Status) bool { return s.Serves("GPU-0") && s.Serves("GPU-1") })
	require.Empty(t, with.Without)
	require.NotEqual(t, without.Epoch, with.Epoch)
}

func TestWithNoCardLeftTheReasonIsNvidiaSMIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, b.fake.FailSMI("GPU-0", true))
	b.run(gpus(gpu, 4, "GPU-0"))
	status := b.wait(gpu, "a reason", explained)
	require.Contains(t, status.Reason, "set the compute mode of GPU-0 to EXCLUSIVE_PROCESS: exit status 1: Unable to determine the device handle for GPU GPU-0: GPU is lost")
	require.Zero(t, status.Starts)
	require.NoError(t, b.fake.FailSMI("GPU-0", false))
	b.ready(gpu)
}

func TestLimitsThatAClientChangedAreSetAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t).run(gpus(gpu, 4, "GPU-0"))
	before := b.ready(gpu)
	ask := func(command string) string {
		cmd := exec.Command(b.programs().Control)
		cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + b.pipe(), "GORACE=atexit_sleep_ms=0"}
		cmd.Stdin = strings.NewReader(command + "\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	ask("set_default_active_thread_percentage 100")
	b.eventually("the share that we set", func() bool { return ask("get_default_active_thread_percentage") == "25.0" })
	after, _ := b.m.Status(gpu)
	require.Equal(t, before, after)
}

func TestWithSELinuxContainersMayUseTheDirectories(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(host, "sys", "fs", "selinux"), 0o755))
	b := newBench(t, func(c *Config) { c.Roots = roots.Roots{Host: host} }).run(gpus(gpu, 4, "GPU-0"))
	b.ready(gpu)
	edits, _, err := b.m.ContainerEdits(gpu)
	require.NoError(t, err)
	for _, m := range edits.Mounts {
		require.Equal(t, "system_u:object_r:container_file_t:s0", labelOf(t, m.HostPath), m.HostPath)
	}
	// A label that is there keeps its user and role.
	dir := t.TempDir()
	require.NoError(t, unix.Lsetxattr(dir, labelAttribute, []byte("unconfined_u:object_r:var_run_t:s0:c1,c2\x00"), 0))
	require.NoError(t, b.m.cfg.label(dir))
	require.Equal(t, "unconfined_u:object_r:container_file_t:s0", labelOf(t, dir))
}

func labelOf(t *testing.T, path string) string {
	t.Helper()
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, labelAttribute, buf)
	require.NoError(t, err)
	return string(bytes.TrimRight(buf[:n], "\x00"))
}

func TestSharedMemoryThatIsGivenIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) {
		c.Shm = "/dev/shm"
		c.Mapping = roots.Mapping{{Inside: "/dev/shm", Host: "/run/mps/shm"}, {Inside: c.Root, Host: "/run/mps"}}
	}).run(gpus(gpu, 4, "GPU-0"))
	status := b.ready(gpu)
	var host unix.Stat_t
	require.NoError(t, unix.Stat("/dev/shm", &host))
	require.Equal(t, host.Ino, b.daemon("GPU-0").ShmInode)
	edits, required, err := b.m.ContainerEdits(gpu)
	require.NoError(t, err)
	pipe := "/run/mps/nvidia.com_gpu/" + status.Epoch + "/pipe"
	require.Equal(t, []string{pipe}, required)
	require.Equal(t, []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe}, edits.Env, "a container has the host's paths")
	require.Equal(t, "/run/mps/shm", edits.Mounts[1].HostPath)
	b.stop()
	require.DirExists(t, "/dev/shm")
}

func TestSharedMemoryIsMountedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 20 {
		errs, begin := make(chan error), make(chan struct{})
		for range 16 {
			go func() {
				<-begin
				errs <- b.m.cfg.mountShm()
			}()
		}
		close(begin)
		for range 16 {
			require.NoError(t, <-errs)
		}
		require.NoError(t, b.m.cfg.unmountShm())
		require.NoDirExists(t, filepath.Join(b.root(), "shm"))
	}
	require.NoError(t, b.m.cfg.unmountShm(), "there is nothing left to unmount")
}

func TestALogThatGrowsIsEmptied(t *testing.T) {
	t.Parallel()
	b := newBench(t).run(gpus(gpu, 4, "GPU-0"))
	b.ready(gpu)
	log := filepath.Join(b.daemon("GPU-0").Env["CUDA_MPS_LOG_DIRECTORY"], "control.log")
	require.NoError(t, os.WriteFile(log, nil, 0o644))
	require.NoError(t, os.Truncate(log, maxLog+1))
	b.eventually("an empty log", func() bool {
		info, err := os.Stat(log)
		return err == nil && info.Size() == 0
	})
}
