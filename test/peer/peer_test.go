//go:build e2e

// Package peer compares what we generate with what others generate and read:
// the specs of NVIDIA's toolkit, from the real driver's user space, and podman.
package peer

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

func top(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	return dir
}

func cache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("NRI_GPU_CACHE"); dir != "" {
		return dir
	}
	return filepath.Join(top(t), ".cache")
}

// node is a host for one T4, with the real driver's files.
type node struct {
	roots   roots.Roots
	version string
	nvml    string // the driver's own, over which the fake is mounted
}

const uuid = "GPU-74000000-0000-4000-8000-000000000000"

func newNode(t *testing.T) node {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cache(t), "driver-*", "root"))
	require.NoError(t, err)
	require.NotEmpty(t, found, "the driver's user space is missing; run hack/fetch-driver.sh")
	n := node{roots: roots.Roots{Driver: found[len(found)-1], Dev: t.TempDir(), Host: t.TempDir()}}
	files, err := filepath.Glob(filepath.Join(n.roots.Driver, "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.*.*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	n.nvml = files[0]
	n.version = strings.TrimPrefix(filepath.Base(n.nvml), "libnvidia-ml.so.")
	inv := device.Inventory{GPUs: []device.GPU{{UUID: uuid, PCIBusID: "0000:00:1e.0", NUMANode: -1}}}
	require.NoError(t, fakehost.Make(n.roots, inv))
	require.NoError(t, os.WriteFile(n.roots.Sys("module", "nvidia", "version"), []byte(n.version+"\n"), 0o644))
	return n
}

// run runs a command where the fake NVML lies over the driver's own.
func (n node) run(t *testing.T, args ...string) []byte {
	t.Helper()
	fake := filepath.Join(top(t), "bin", "test", "libnvidia-ml.so.1")
	script := `mount --bind "$1" "$2" && shift 2 && exec "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"-m", "sh", "-c", script, "sh", fake, n.nvml}, args...)...)
	cmd.Env = append(os.Environ(), "NRI_GPU_FAKE_NVML_CONFIG="+fakelib.Profile("t4x1"), "NRI_GPU_FAKE_NVML_DRIVER="+n.version)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	require.NoError(t, err, errors.String())
	return out
}

func decode(t *testing.T, data []byte) *specs.Spec {
	t.Helper()
	spec := &specs.Spec{}
	require.NoError(t, json.Unmarshal(data, spec))
	return spec
}

// content is what a container gets of device 0, by purpose: by the names of
// things, since the two put them in different directories.
type content map[string]bool

func contentOf(t *testing.T, spec *specs.Spec) content {
	t.Helper()
	c := content{}
	i := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == "0" })
	require.GreaterOrEqual(t, i, 0)
	for _, e := range []specs.ContainerEdits{spec.ContainerEdits, spec.Devices[i].ContainerEdits} {
		for _, n := range e.DeviceNodes {
			c["node "+n.Path] = true
		}
		for _, m := range e.Mounts {
			c["file "+path.Base(m.ContainerPath)] = true
		}
		for _, v := range e.Env {
			c["env "+v] = true
		}
		for _, h := range e.Hooks {
			c.hook(t, h.Args)
		}
	}
	for _, d := range spec.Devices {
		c["name "+d.Name] = true
	}
	return c
}

func (c content) hook(t *testing.T, args []string) {
	t.Helper()
	if !hookargs.IsHook(args) {
		c["hook "+args[1]] = true
		for i, a := range args {
			if _, link, ok := strings.Cut(a, "::"); ok && args[i-1] == "--link" {
				c["link "+path.Base(link)] = true
			}
		}
		return
	}
	a, _, err := hookargs.Decode(args)
	require.NoError(t, err)
	for _, l := range a.Links {
		c["link "+path.Base(l.Path)] = true
	}
	for _, l := range a.Libraries {
		if l.SONAME != path.Base(l.Path) {
			c["link "+l.SONAME] = true
		}
	}
	// One hook does what two of the peer's do.
	c["hook create-symlinks"], c["hook update-ldcache"] = true, true
}

// reasons explains every difference; one that is not here fails the test.
func reasons() map[string]string {
	return map[string]string{
		// What the peer has and we have not.
		"hook enable-cuda-compat":               "the driver's libcuda comes first in the container's cache, so that a compat library of the image is used through LD_LIBRARY_PATH only",
		"hook disable-device-node-modification": "it hides /proc/driver/nvidia/params from tools that would make device nodes, which the device cgroup keeps them from opening",
		"hook update-application-profile":       "it limits OpenGL to the container's cards; CUDA and Vulkan on one card need no profile",
		"hook apply-cuda-memory-limits":         "it serves shares of a card, which this kind does not offer",
		"env NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu/nvidia/current": "read by the peer's own hooks only",
		"file void": "an empty mount that tells the peer's legacy runtime to do nothing; NVIDIA_VISIBLE_DEVICES=void says the same",
		// What we have and the peer has not.
		"file nvidia-smi":             "Debian has it in /usr/lib/nvidia/current, where the peer does not look",
		"file nvoptix.bin":            "Debian has it beside the libraries, where the peer does not look",
		"link libnvidia-egl-gbm.so.1": "the SONAME of a library that is mounted, whether or not the host has the link",
	}
}

func TestOurSpecIsASupersetOfThePeers(t *testing.T) {
	n := newNode(t)
	ctk := filepath.Join(cache(t), "tools", "bin", "nvidia-ctk")
	require.FileExists(t, ctk, "run hack/build-tools.sh nvidia-container-toolkit")
	peer := contentOf(t, decode(t, n.run(t, ctk, "cdi", "generate", "--mode=nvml", "--driver-root", n.roots.Driver, "--dev-root", n.roots.Dev, "--format", "json")))
	ours := contentOf(t, decode(t, n.run(t, filepath.Join(top(t), "bin", "gpuctl"), "cdi", "generate", "--format", "json", "--capabilities", "all",
		"--driver-root", n.roots.Driver, "--dev-root", n.roots.Dev, "--host-root", n.roots.Host)))
	require.Greater(t, len(peer), 50)

	why := reasons()
	used := map[string]bool{}
	explain := func(what string, have, lack content) {
		for _, item := range slices.Sorted(maps.Keys(have)) {
			if lack[item] {
				continue
			}
			reason, ok := why[item]
			require.True(t, ok, "%s: %s, and no reason is given", what, item)
			used[item] = true
			t.Logf("%s: %s: %s", what, item, reason)
		}
	}
	explain("only the peer has", peer, ours)
	explain("only we have", ours, peer)
	for item := range why {
		require.True(t, used[item], "a reason is given for a difference that is not there: %s", item)
	}
	for item := range peer {
		if strings.HasPrefix(item, "file lib") || strings.HasPrefix(item, "node ") || strings.HasPrefix(item, "link ") {
			require.Contains(t, ours, item, "no library, node or link of the peer's may be missing")
		}
	}
}
