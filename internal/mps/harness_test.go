package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/dirwatch"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakemps"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

// managerDir names, in the environment of this program, the directory of a
// Manager that it is to be.
const managerDir = "MPS_TEST_MANAGER_DIR"

// TestMain is also the fake programs, and a Manager that can be killed.
func TestMain(m *testing.M) {
	if code, ours := fakemps.Main(); ours {
		os.Exit(code) //nolint:forbidigo // this is another program
	}
	if dir := os.Getenv(managerDir); dir != "" {
		b := &bench{dir: dir}
		b.m = New(b.config())
		b.m.Set(b.programs(), []Resource{gpus("nvidia.com/gpu", 4, "GPU-0", "GPU-1")})
		b.m.Run(context.Background())
		return
	}
	goleak.VerifyTestMain(m)
}

// bench is a Manager with fake programs.
type bench struct {
	t       *testing.T
	dir     string
	fake    *fakemps.Programs
	m       *Manager
	changed dirwatch.Waker
	stop    func()

	mu sync.Mutex
	// history are the statuses at each call of Changed.
	history []Status
}

func (b *bench) root() string { return filepath.Join(b.dir, "mps") }

func (b *bench) programs() Programs {
	return Programs{
		Control: filepath.Join(b.dir, "nvidia-cuda-mps-control"), Server: filepath.Join(b.dir, "nvidia-cuda-mps-server"), SMI: filepath.Join(b.dir, "nvidia-smi"), Version: "535.309.01",
		// The race detector sleeps for a second at the end of each program.
		Env: []string{"GORACE=atexit_sleep_ms=0"},
	}
}

func (b *bench) config() Config {
	log := logrus.New()
	log.SetLevel(logrus.DebugLevel)
	if b.t != nil {
		log.SetOutput(b.t.Output())
	}
	return Config{
		Root: b.root(), Log: log,
		Timing: Timing{
			Query: 200 * time.Millisecond, Answer: patience / 2, Misses: 2, Start: patience, Stop: patience,
			BackoffMin: 20 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
		},
		Changed: b.note,
	}
}

// newBench makes a Manager that does not run yet.
func newBench(t *testing.T, adjust ...func(*Config)) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	b := &bench{t: t, dir: dir, changed: dirwatch.NewWaker()}
	b.fake, err = fakemps.Install(dir)
	require.NoError(t, err)
	cfg := b.config()
	for _, f := range adjust {
		f(&cfg)
	}
	b.m = New(cfg)
	return b
}

// run runs the Manager until the test or stop ends it; nothing may be left then.
func (b *bench) run(wanted ...Resource) *bench {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.m.Run(ctx)
	}()
	b.stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(2 * patience):
			b.t.Error("the Manager does not stop")
		}
	}
	b.t.Cleanup(func() {
		b.stop()
		b.nothingLeft()
	})
	b.m.Set(b.programs(), wanted)
	return b
}

func (b *bench) nothingLeft() {
	b.t.Helper()
	for _, c := range b.calls("") {
		if c.Program != "command" && c.PID != 0 {
			b.gone(c.PID)
		}
	}
	left, err := filepath.Glob(filepath.Join(b.root(), "*"))
	require.NoError(b.t, err)
	require.Empty(b.t, left)
}

// gone waits for the end of a process; who reaps it is no matter of ours.
func (b *bench) gone(pid int) {
	b.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	require.NoError(b.t, err)
	defer unix.Close(fd)
	require.NoError(b.t, waitFd(fd, patience), "process %d", pid)
}

func (b *bench) alive(pid int) bool {
	b.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false
	}
	require.NoError(b.t, err)
	defer unix.Close(fd)
	return waitFd(fd, 0) != nil
}

// calls are those of one program, or all.
func (b *bench) calls(program string) []fakemps.Call {
	b.t.Helper()
	all, err := b.fake.Calls()
	require.NoError(b.t, err)
	var out []fakemps.Call
	for _, c := range all {
		if program == "" || c.Program == program {
			out = append(out, c)
		}
	}
	return out
}

// daemon is the one that was started last for some cards.
func (b *bench) daemon(cards string) fakemps.Call {
	b.t.Helper()
	var out fakemps.Call
	for _, c := range b.calls("nvidia-cuda-mps-control") {
		if c.Env["CUDA_VISIBLE_DEVICES"] == cards {
			out = c
		}
	}
	require.NotZero(b.t, out.PID, "no daemon was started for %s", cards)
	return out
}

// pipe is the pipe directory that a container would get now.
func (b *bench) pipe() string {
	b.t.Helper()
	_, required, err := b.m.ContainerEdits(gpu)
	require.NoError(b.t, err)
	require.Len(b.t, required, 1)
	return required[0]
}

func gpus(name string, replicas int, uuids ...string) Resource {
	r := Resource{Name: name}
	for _, u := range uuids {
		r.Devices = append(r.Devices, Device{UUID: u, MemoryBytes: 16 << 30, ComputeCapability: "8.0", Replicas: replicas})
	}
	return r
}

const gpu = "nvidia.com/gpu"
