// Package install_test installs on a node that is a directory, and uninstalls.
package install_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkout is a copy of what the scripts need, with programs that are empty.
func checkout(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	for _, d := range []string{"hack", "configs"} {
		require.NoError(t, os.CopyFS(filepath.Join(top, d), os.DirFS(filepath.Join("..", "..", d))))
	}
	for _, s := range []string{"install.sh", "uninstall.sh"} {
		require.NoError(t, os.Chmod(filepath.Join(top, "hack", s), 0o755))
	}
	require.NoError(t, os.Mkdir(filepath.Join(top, "bin"), 0o755))
	for _, p := range []string{"nri-gpu", "gpu-device-plugin", "gpu-hook", "gpuctl"} {
		require.NoError(t, os.WriteFile(filepath.Join(top, "bin", p), []byte("#!/bin/sh\n"), 0o755))
	}
	return top
}

func script(t *testing.T, top, name, dest, version string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(top, "hack", name))
	cmd.Env = append(os.Environ(), "DESTDIR="+dest, "VERSION="+version)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil && p != dir {
			out = append(out, strings.TrimPrefix(p, dir))
		}
		return err
	}))
	return out
}

func TestInstallUpgradeAndUninstall(t *testing.T) {
	t.Parallel()
	top, dest := checkout(t), t.TempDir()
	const lib = "/usr/local/lib/nri-gpu"
	out := script(t, top, "install.sh", dest, "v1")
	require.Contains(t, out, lib+"/v1/gpu-hook")
	first := files(t, dest)
	script(t, top, "install.sh", dest, "v1")
	require.Equal(t, first, files(t, dest), "a second time changes nothing")

	config := filepath.Join(dest, "etc/nri-gpu/nri-gpu.yaml")
	require.NoError(t, os.WriteFile(config, []byte("log-level: debug\n"), 0o644))
	script(t, top, "install.sh", dest, "v2")
	target, err := os.Readlink(filepath.Join(dest, lib, "current"))
	require.NoError(t, err)
	require.Equal(t, "v2", target)
	require.FileExists(t, filepath.Join(dest, lib, "v1/gpu-hook"), "what runs goes on naming it")
	data, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Equal(t, "log-level: debug\n", string(data), "an edited file is left as it is")

	for _, f := range []string{"var/run/nri-gpu/inventory.json", "var/run/cdi/nri-gpu.io-gpu.json", "var/lib/nri-gpu/alloc.key"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dest, filepath.Dir(f)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dest, f), nil, 0o600))
	}
	script(t, top, "uninstall.sh", dest, "")
	require.Empty(t, files(t, dest), "nothing is left")
	script(t, top, "uninstall.sh", dest, "")
}

func TestInstallSaysWhichProgramIsNotBuilt(t *testing.T) {
	t.Parallel()
	top, dest := checkout(t), t.TempDir()
	require.NoError(t, os.Remove(filepath.Join(top, "bin", "gpu-hook")))
	cmd := exec.CommandContext(t.Context(), filepath.Join(top, "hack", "install.sh"))
	cmd.Env = append(os.Environ(), "DESTDIR="+dest, "VERSION=v1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "bin/gpu-hook is not built")
	require.Empty(t, files(t, dest))
}
