//go:build e2e

package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// build makes the demo, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return exe
}

// left lists what a run leaves: directories, cgroups, and processes that name
// its directory.
func left(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/tmp/nri-gpu-e2e-*", "/sys/fs/cgroup/nri-gpu-e2e-*", "/sys/fs/cgroup/*/nri-gpu-e2e-*"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		out = append(out, found...)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, p := range processes {
		if data, err := os.ReadFile(p); err == nil && bytes.Contains(data, []byte("/tmp/nri-gpu-e2e-")) {
			out = append(out, p+": "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "nri-gpu-e2e-") {
			out = append(out, line)
		}
	}
	return out
}

// machine lists what lies in the machine's own directories, three levels deep:
// programs write to places that they were not told of.
func machine(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, top := range []string{"/etc", "/opt", "/srv", "/usr/libexec", "/usr/local", "/var/cache", "/var/lib", "/var/log", "/run", "/dev"} {
		for _, depth := range []string{"*", "*/*", "*/*/*"} {
			found, err := filepath.Glob(filepath.Join(top, depth))
			require.NoError(t, err)
			out = append(out, found...)
		}
	}
	return out
}

func TestTheDemoRunsTwiceInARowAndLeavesNothing(t *testing.T) {
	exe := build(t)
	before := machine(t)
	for range 2 {
		out, err := exec.CommandContext(t.Context(), exe).CombinedOutput()
		require.NoError(t, err, string(out))
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		require.Equal(t, "demo: ok", lines[len(lines)-1])
		for _, want := range []string{"pod one-gpu", "pod two-gpus", "pod no-gpu", "/dev/nvidia0", "195:0", "libcuda.so.1"} {
			require.Contains(t, string(out), want)
		}
		require.Empty(t, left(t))
	}
	require.Equal(t, before, machine(t), "nothing is written beside the working directory")
}

func TestADemoThatIsKilledLeavesNothing(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), build(t))
	cmd.Env = append(os.Environ(), "KEEP=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	var text strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Ctrl-C ends it") {
			break
		}
	}
	require.Contains(t, text.String(), "nsenter", "it says how to talk to it:\n%s", text.String())
	require.NotEmpty(t, left(t), "it runs")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.Eventually(t, func() bool { return len(left(t)) == 0 }, 30*time.Second, 100*time.Millisecond, "everything is gone")
}
