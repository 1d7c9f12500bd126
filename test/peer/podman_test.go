//go:build e2e

package peer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
)

// world keeps podman away from the machine's own containers and specs.
var world *harness.World

func TestMain(m *testing.M) {
	var err error
	if world, err = harness.Enter(); err != nil {
		panic(err)
	}
	m.Run()
}

// podman runs a command in a container of the Debian image, with devices.
func podman(t *testing.T, rootfs string, node *harness.GPUNode, device string) report.Report {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "podman", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
		"--network-config-dir", filepath.Join(dir, "networks"),
		"--cgroup-manager", "cgroupfs", "--runtime", "/usr/sbin/runc", "--events-backend", "none",
		"run", "--rm", "--network", "none", "--cgroup-parent", "/"+world.Cgroup, "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"--cap-add", "MKNOD", "--volume", filepath.Join(top(t), "bin", "test")+":/probe:ro", "--volume", node.InsideConfig()+":"+harness.InsideConfigPath+":ro",
		"--device", device, "--rootfs", rootfs, "/probe/probe")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	var r report.Report
	require.NoError(t, json.Unmarshal(out, &r), string(out))
	return r
}

// overlay gives each container files of its own over the image's.
func overlay(t *testing.T, lower string) string {
	t.Helper()
	dir := filepath.Join(world.Dir, t.Name())
	for _, d := range []string{"upper", "work", "root"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	data := "lowerdir=" + lower + ",upperdir=" + filepath.Join(dir, "upper") + ",workdir=" + filepath.Join(dir, "work")
	root := filepath.Join(dir, "root")
	require.NoError(t, unix.Mount("overlay", root, "overlay", 0, data))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(root, unix.MNT_DETACH)) })
	return root
}

// TestPodmanReadsOurSpec uses Debian's podman 4.3, which refuses CDI 0.6.0.
func TestPodmanReadsOurSpec(t *testing.T) {
	node, err := harness.NewGPUNode(world, filepath.Join(top(t), "bin"), "a100x8")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(harness.CDIDir, 0o755))
	spec := filepath.Join(harness.CDIDir, "nvidia.yaml")
	cmd := exec.CommandContext(t.Context(), filepath.Join(node.Bin, "gpuctl"), "cdi", "generate", "--kind", "nvidia.com/gpu", "--cdi-version", "0.5.0",
		"--output", spec, "--driver-root", node.Roots.Driver, "--dev-root", node.Roots.Dev, "--host-root", node.Roots.Host,
		"--hook-path", filepath.Join(node.Bin, "gpu-hook"))
	cmd.Env = append(os.Environ(), "NRI_GPU_FAKE_NVML_CONFIG="+node.Config)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	// Of the machine's directories /etc alone is not private to the world.
	before, err := filepath.Glob("/etc/*/*/*")
	require.NoError(t, err)
	image := harness.DebianImage(cache(t)).Root
	for name, minors := range map[string][]uint32{"0": {0}, "all": {0, 1, 2, 3, 4, 5, 6, 7}} {
		t.Run(name, func(t *testing.T) {
			r := podman(t, overlay(t, image), node, "nvidia.com/gpu="+name)
			var open []uint32
			for _, n := range r.Made {
				if n.Allowed() {
					open = append(open, n.Minor)
				} else {
					require.Equal(t, "EPERM", n.Open)
				}
			}
			require.Equal(t, minors, open)
			require.Len(t, r.NVML, len(minors))
			require.Equal(t, "ok", r.Dlopen)
			require.Equal(t, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", r.Libraries["libcuda.so.1"])
			require.True(t, slices.Contains(r.Env, "NVIDIA_VISIBLE_DEVICES=void"))
		})
	}
	after, err := filepath.Glob("/etc/*/*/*")
	require.NoError(t, err)
	require.Equal(t, before, after, "nothing is written into /etc")
}
