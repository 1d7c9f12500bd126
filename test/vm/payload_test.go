//go:build e2e

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// payload makes the second disk: this checkout as far as an installation needs
// it, the programs of the real stack, images, the module, and the tests.
func payload(t *testing.T, top, cache, vm string) string {
	t.Helper()
	dir := t.TempDir()
	in := func(p string) string { return filepath.Join(dir, p) }
	tools := harness.Tools(filepath.Join(cache, "tools", "bin"))
	files := map[string]string{
		layout.Tests:              filepath.Join(top, "bin/test/vm-guest.test"),
		"run-tests":               filepath.Join(top, "test/vm/run-tests.sh"),
		layout.Module:             filepath.Join(vm, "nvidia.ko"),
		layout.NVML:               filepath.Join(top, "bin/test/libnvidia-ml.so.1"),
		layout.Machine:            filepath.Join(top, "test/fakenvml/a100x8.json"),
		layout.Checkout + "/hack": filepath.Join(top, "hack"), layout.Checkout + "/configs": filepath.Join(top, "configs"),
	}
	for _, p := range []string{"nri-gpu", "gpu-device-plugin", "gpu-hook", "gpuctl"} {
		files[layout.Checkout+"/bin/"+p] = filepath.Join(top, "bin", p)
	}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "kubelet"} {
		require.NoError(t, tools.Check(p))
		files[layout.Tools+"/"+p] = tools.Path(p)
	}
	for to, from := range files {
		copied(t, from, in(to))
	}
	images(t, in(layout.Images), filepath.Join(top, "bin/test/probe"))
	disk := filepath.Join(t.TempDir(), "payload.img")
	out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-d", dir, disk, "1G").CombinedOutput()
	require.NoError(t, err, string(out))
	return disk
}

// copied copies a file, or a directory, following the links that name it.
func copied(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	require.NoError(t, err, "make build and hack/build-tools.sh make what is missing")
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	if info.IsDir() {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		require.NoError(t, filepath.WalkDir(to, func(p string, _ os.DirEntry, err error) error {
			if err == nil && filepath.Ext(p) == ".sh" {
				err = os.Chmod(p, 0o755)
			}
			return err
		}))
		return
	}
	out, err := exec.CommandContext(t.Context(), "cp", "-L", from, to).CombinedOutput()
	require.NoError(t, err, string(out))
}

// images are the sandbox's, and one with the probe.
func images(t *testing.T, dir, probe string) {
	t.Helper()
	pause, err := (&harness.World{Dir: t.TempDir()}).PauseImage()
	require.NoError(t, err)
	copied(t, probe, filepath.Join(pause.Root, "probe"))
	require.NoError(t, os.Mkdir(filepath.Join(pause.Root, "tmp"), 0o777))
	image := pause
	image.Name, image.Command = layout.Image, []string{"/probe", "wait"}
	for i, one := range []harness.Image{pause, image} {
		require.NoError(t, one.Archive(t.Context(), filepath.Join(dir, fmt.Sprintf("%d.tar", i))))
	}
}
