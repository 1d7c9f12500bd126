//go:build e2e

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machineSocket is where a machine's own containerd listens.
const machineSocket = "/run/containerd/containerd.sock"

func answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close() // it answered, which is all that is asked
	return true
}

func tool(t *testing.T, name string) string {
	t.Helper()
	cache := os.Getenv("NRI_GPU_CACHE")
	if cache == "" {
		cache = filepath.Join("..", "..", ".cache")
	}
	path, err := filepath.Abs(filepath.Join(cache, "tools", "bin", name))
	require.NoError(t, err)
	require.FileExists(t, path, "run hack/build-tools.sh containerd")
	return path
}

// machinesContainerd makes sure that the machine has one of its own.
func machinesContainerd(t *testing.T) {
	t.Helper()
	if answers(machineSocket) {
		return
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	require.NoError(t, os.WriteFile(config, []byte(`version = 3
disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images', 'io.containerd.nri.v1.nri']
root = '`+dir+`/root'
state = '`+dir+`/state'
[grpc]
  address = '`+machineSocket+`'
[plugins.'io.containerd.internal.v1.opt']
  path = '`+dir+`/opt'
`), 0o644))
	cmd := exec.CommandContext(t.Context(), tool(t, "containerd"), "--config", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // ended by the test's context
		require.NoError(t, os.RemoveAll(filepath.Dir(machineSocket)))
	})
	require.Eventually(t, func() bool { return answers(machineSocket) }, 30*time.Second, 50*time.Millisecond)
}

func TestTheDemoRunsBesideTheMachinesOwnContainerd(t *testing.T) {
	machinesContainerd(t)
	list := func() string {
		out, err := exec.CommandContext(t.Context(), tool(t, "ctr"), "--address", machineSocket, "namespaces", "list", "-q").Output()
		require.NoError(t, err)
		return string(out)
	}
	before := list()
	out, err := exec.CommandContext(t.Context(), build(t)).CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, answers(machineSocket))
	require.Equal(t, before, list(), "the machine's containerd saw nothing of it")
	require.Empty(t, left(t))
}
