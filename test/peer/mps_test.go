//go:build e2e

package peer

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/mps"
)

// NVIDIA's own control daemon, which needs no GPU before its first client, is
// run, limited, watched, replaced and stopped. Of its server there is a stand-in,
// since a server needs a card; nvidia-smi is left out for the same reason.
func TestNVIDIAsControlDaemonIsServed(t *testing.T) {
	driver := newNode(t).roots.Driver
	dir, err := os.MkdirTemp("", "mps") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	server := filepath.Join(dir, "nvidia-cuda-mps-server")
	require.NoError(t, os.WriteFile(server, []byte("#!/bin/sh\ntrap 'exit 0' TERM\nwhile :; do sleep 600 & wait; done\n"), 0o755))
	programs := mps.Programs{Control: filepath.Join(driver, "usr/bin/nvidia-cuda-mps-control"), Server: server, SMI: "/bin/true"}

	log := logrus.New()
	log.SetOutput(t.Output())
	changed := make(chan struct{}, 1)
	timing := mps.DefaultTiming()
	timing.Query, timing.Stop, timing.BackoffMin = 200*time.Millisecond, 5*time.Second, 50*time.Millisecond
	m := mps.New(mps.Config{Root: filepath.Join(dir, "mps"), Timing: timing, Log: log, Changed: func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done // the deadlines of Timing bound it
	}
	defer stop()
	const resource = "nvidia.com/gpu"
	m.Set(programs, []mps.Resource{{Name: resource, Devices: []mps.Device{{UUID: uuid, MemoryBytes: 16 << 30, ComputeCapability: "7.5", Replicas: 4}}}})
	ready := func(not string) mps.Status {
		deadline := time.After(time.Minute)
		for {
			if s, _ := m.Status(resource); s.Ready && s.Epoch != not {
				return s
			}
			select {
			case <-changed:
			case <-deadline:
				s, _ := m.Status(resource)
				require.Fail(t, "MPS is not ready", "%+v", s)
			}
		}
	}
	first := ready("")
	ask := func(command string) string {
		edits, _, err := m.ContainerEdits(resource)
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), programs.Control)
		cmd.Env, cmd.Stdin = edits.Env, strings.NewReader(command+"\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, "25.0", ask("get_default_active_thread_percentage"))
	require.Equal(t, "4G", ask("get_default_device_pinned_mem_limit 0"))

	// A daemon that is killed leaves its server, which is ended with it.
	require.Empty(t, ask("start_server -uid 0"))
	orphan, err := strconv.Atoi(ask("get_server_list"))
	require.NoError(t, err)
	require.NoError(t, exec.CommandContext(t.Context(), "kill", "-9", parent(t, orphan)).Run())
	second := ready(first.Epoch)
	require.NoDirExists(t, filepath.Join("/proc", strconv.Itoa(orphan)))
	require.Equal(t, 2, second.Starts)
	require.Equal(t, "25.0", ask("get_default_active_thread_percentage"))

	stop()
	left, err := filepath.Glob(filepath.Join(dir, "mps", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func parent(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), "PPid:\t")
	require.True(t, found)
	parent, _, _ := strings.Cut(rest, "\n")
	return parent
}
