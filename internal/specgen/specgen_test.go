package specgen_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	goldenfile "github.com/nri-gpu/nri-gpu/internal/testutil/golden"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

const hook = "/usr/local/lib/nri-gpu/current/gpu-hook"

func healthy() device.Health { return device.Health{Healthy: true} }

func inventory() device.Inventory {
	return device.Inventory{
		Driver: device.Driver{State: device.DriverReady, Version: fakehost.DriverVersion},
		GPUs: []device.GPU{
			{UUID: "GPU-0", Index: 0, Minor: 1, PCIBusID: "0000:07:00.0", Model: "A", DRMNodes: []string{"card1", "renderD128"}, Health: healthy()},
			{UUID: "GPU-1", Index: 1, Minor: 0, PCIBusID: "0000:0f:00.0", Model: "A", MIGEnabled: true, Health: healthy(), MIGDevices: []device.MIGDevice{
				{UUID: "MIG-GPU-1/1/0", Index: 0, Profile: "3g.20gb", GPUInstance: 1, GPUInstanceMinor: 12, ComputeInstanceMinor: 13, Health: healthy()},
			}},
		},
	}
}

// node is a host with a driver of a layout; the roots are given unless the
// layout is one that is found.
func node(t *testing.T, layout string) specgen.Config {
	t.Helper()
	r := roots.Roots{Dev: t.TempDir(), Host: t.TempDir()}
	root := map[string]string{"gke": "/home/kubernetes/bin/nvidia", "talos": "/usr/local", "container": "/run/nvidia/driver"}[layout]
	files := layout
	if layout == "container" {
		files = "ubuntu"
	}
	require.NoError(t, fakeroot.Make(filepath.Join(r.Host, root), fakeroot.Options{Layout: files, Version: fakehost.DriverVersion}))
	require.NoError(t, fakehost.Make(r, inventory()))
	return specgen.Config{Roots: r, HookPath: hook}
}

func generate(t *testing.T, inv device.Inventory, cfg specgen.Config) *specgen.Result {
	t.Helper()
	res, err := specgen.Generate(t.Context(), inv, cfg)
	require.NoError(t, err)
	return res
}

// golden compares with a file, in which the roots have names.
func golden(t *testing.T, name string, cfg specgen.Config, got []byte) {
	t.Helper()
	text := strings.NewReplacer(cfg.Roots.Dev, "{{dev}}", cfg.Roots.Host, "{{host}}").Replace(string(got))
	goldenfile.Equal(t, filepath.Join("testdata", name+".json"), text)
}

func TestGoldenLayouts(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"ubuntu", "debian", "rhel", "arch", "gke", "talos", "nixos", "container"} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			cfg := node(t, layout)
			res := generate(t, inventory(), cfg)
			require.Empty(t, res.Report.Unserved)
			data, err := json.MarshalIndent([]*specs.Spec{res.Specs[cdi.KindGPU], res.Specs[cdi.KindDriver]}, "", "  ")
			require.NoError(t, err)
			golden(t, layout, cfg, append(data, '\n'))
		})
	}
}

func TestTheSameNodeGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	var first []byte
	for range 100 {
		data, err := cdi.EncodeSpec(generate(t, inventory(), cfg).Specs[cdi.KindDriver], cdi.JSON, "")
		require.NoError(t, err)
		if first == nil {
			first = data
		}
		require.Equal(t, string(first), string(data))
	}
}

func TestAMissingNodeCostsItsCardOnly(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	require.NoError(t, os.Remove(cfg.Roots.DevPath("/dev/nvidia1")))
	res := generate(t, inventory(), cfg)
	require.False(t, res.Inventory.GPUs[0].Health.Healthy)
	require.Contains(t, res.Inventory.GPUs[0].Health.Reason, "/dev/nvidia1 does not exist")
	require.Contains(t, res.Inventory.GPUs[0].Health.Reason, "nvidia-modprobe")
	require.True(t, res.Inventory.GPUs[1].Health.Healthy)
	require.Equal(t, []string{"GPU-1", "MIG-GPU-1_1_0"}, deviceNames(res))
}

func deviceNames(res *specgen.Result) []string {
	var out []string
	for _, d := range res.Specs[cdi.KindGPU].Devices {
		out = append(out, d.Name)
	}
	return out
}

func TestAMIGDeviceWithoutItsCapabilityNodeIsNotServed(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	require.NoError(t, os.Remove(cfg.Roots.DevPath(devnodes.Capability(13))))
	res := generate(t, inventory(), cfg)
	require.Contains(t, res.Inventory.GPUs[1].MIGDevices[0].Health.Reason, "nvidia-cap13")
	require.Equal(t, []string{"GPU-0", "GPU-1"}, deviceNames(res))
}

func TestWithoutAControlNodeNothingIsServed(t *testing.T) {
	t.Parallel()
	for _, n := range []string{devnodes.Control, devnodes.UVM} {
		cfg := node(t, "ubuntu")
		require.NoError(t, os.Remove(cfg.Roots.DevPath(n)))
		res := generate(t, inventory(), cfg)
		require.Contains(t, res.Report.Unserved, n)
		require.NotContains(t, res.Specs, cdi.KindDriver)
		for _, g := range res.Inventory.GPUs {
			require.False(t, g.Health.Healthy)
			require.Contains(t, g.Health.Reason, n)
		}
	}
}

func TestTwoDriverVersionsMeanTheLoadedOne(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	require.NoError(t, fakeroot.Make(t.TempDir(), fakeroot.Options{Layout: "ubuntu", Version: "550.1.1"}))
	lib := filepath.Join(cfg.Roots.Host, "usr/lib/x86_64-linux-gnu")
	for _, n := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		require.NoError(t, os.WriteFile(filepath.Join(lib, n+"550.1.1"), fakeroot.Library(n+"1", false), 0o644))
	}
	res := generate(t, inventory(), cfg)
	require.Empty(t, res.Report.Unserved)
	for _, d := range res.Specs[cdi.KindDriver].Devices {
		for _, m := range d.ContainerEdits.Mounts {
			require.NotContains(t, m.HostPath, "550.1.1")
		}
	}
	require.NoError(t, os.WriteFile(cfg.Roots.Sys("module", "nvidia", "version"), []byte("560.2\n"), 0o644))
	res = generate(t, inventory(), cfg)
	require.Contains(t, res.Report.Unserved, "the loaded kernel module is 560.2")
	require.Contains(t, res.Report.Unserved, "550.1.1")
}

func TestDamageInADriverRootIsReportedAndPassedOver(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	lib := filepath.Join(cfg.Roots.Host, "usr/lib/x86_64-linux-gnu")
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Roots.Host, "etc/ld.so.cache"), []byte("glibc-ld.so.cache1.1 and then nonsense"), 0o644))
	require.NoError(t, os.Symlink("libnvidia-loop.so."+fakehost.DriverVersion, filepath.Join(lib, "libnvidia-loop.so."+fakehost.DriverVersion)))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(lib, "libnvidia-gone.so."+fakehost.DriverVersion)))
	require.NoError(t, os.WriteFile(filepath.Join(lib, "libnvidia-text.so."+fakehost.DriverVersion), []byte("text"), 0o644))
	res := generate(t, inventory(), cfg)
	require.Empty(t, res.Report.Unserved)
	var problems []string
	for _, p := range res.Report.Driver.Problems {
		problems = append(problems, p.Path+": "+p.What)
	}
	all := strings.Join(problems, "\n")
	for _, want := range []string{"ld.so.cache: not a valid", "libnvidia-loop.so", "too many levels", "libnvidia-gone.so", "libnvidia-text.so", "not a usable library"} {
		require.Contains(t, all, want)
	}
}

func TestAMissingLibraryIsNamedWithItsDirectories(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	require.NoError(t, os.Remove(filepath.Join(cfg.Roots.Host, "usr/lib/x86_64-linux-gnu/libcuda.so."+fakehost.DriverVersion)))
	res := generate(t, inventory(), cfg)
	require.Contains(t, res.Report.Unserved, "has no libcuda.so."+fakehost.DriverVersion)
}

func TestAnAbsoluteLinkMeansTheDriverRootsOwnFile(t *testing.T) {
	t.Parallel()
	cfg := node(t, "container")
	root := filepath.Join(cfg.Roots.Host, "run/nvidia/driver")
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	name := "libcuda.so." + fakehost.DriverVersion
	require.NoError(t, os.MkdirAll(filepath.Join(root, "opt"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(lib, name), filepath.Join(root, "opt", name)))
	require.NoError(t, os.Symlink("/opt/"+name, filepath.Join(lib, name)))
	res := generate(t, inventory(), cfg)
	require.Empty(t, res.Report.Unserved)
	var found bool
	for _, d := range res.Specs[cdi.KindDriver].Devices {
		for _, m := range d.ContainerEdits.Mounts {
			found = found || m.HostPath == filepath.Join(root, "opt", name) && m.ContainerPath == "/usr/lib/x86_64-linux-gnu/"+name
		}
	}
	require.True(t, found)
}

func TestADaemonInAPodWritesTheHostsPaths(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	var err error
	cfg.Mapping, err = roots.ParseMapping([]string{cfg.Roots.Host + "=/", cfg.Roots.Dev + "=/"})
	require.NoError(t, err)
	res := generate(t, inventory(), cfg)
	data, err := json.Marshal(res.Specs)
	require.NoError(t, err)
	require.NotContains(t, string(data), cfg.Roots.Host)
	require.NotContains(t, string(data), "hostPath\":\"/dev/", "a host path that is the container's is left out")
}

func TestExtraKindsAppearWithTheirNodes(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	require.NotContains(t, generate(t, inventory(), cfg).Specs, cdi.KindGDS)
	for _, n := range []string{"/dev/nvidia-fs0", "/dev/gdrdrv", "/dev/infiniband/uverbs0", "/dev/nvidia-nvswitchctl", "/dev/nvidia-caps-imex-channels/channel7"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(cfg.Roots.DevPath(n)), 0o755))
		require.NoError(t, mknod(cfg.Roots.DevPath(n)))
	}
	res := generate(t, inventory(), cfg)
	for _, kind := range []string{cdi.KindGDS, cdi.KindGDRCopy, cdi.KindMOFED, cdi.KindNVSwitch} {
		require.Contains(t, res.Specs, kind)
		require.Equal(t, cdi.DeviceAll, res.Specs[kind].Devices[0].Name)
	}
	require.Equal(t, "7", res.Specs[cdi.KindIMEX].Devices[0].Name)
}

func TestPublishWritesOnlyWhatChangedAndRemovesWhatIsGone(t *testing.T) {
	t.Parallel()
	cfg := node(t, "ubuntu")
	dir := state.Dir(t.TempDir())
	res := generate(t, inventory(), cfg)
	changed, err := res.Publish(dir)
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = res.Publish(dir)
	require.NoError(t, err)
	require.False(t, changed)

	inv := inventory()
	inv.Driver = device.Driver{State: device.DriverNotLoaded, Reason: "not loaded"}
	inv.GPUs = nil
	changed, err = generate(t, inv, cfg).Publish(dir)
	require.NoError(t, err)
	require.True(t, changed)
	entries, err := os.ReadDir(dir.SpecDir())
	require.NoError(t, err)
	require.Empty(t, entries, "a driver that is gone is not served")
}

func TestFlattenHasOneHookAndAllNames(t *testing.T) {
	t.Parallel()
	res := generate(t, inventory(), node(t, "ubuntu"))
	spec, err := res.Flatten(specgen.Flattening{Kind: "nvidia.com/gpu", Capabilities: cdi.AllCapabilities(), Names: []specgen.Naming{specgen.ByIndex, specgen.ByUUID}})
	require.NoError(t, err)
	var names []string
	for _, d := range spec.Devices {
		names = append(names, d.Name)
		require.Empty(t, d.ContainerEdits.Hooks)
	}
	require.Equal(t, []string{"0", "GPU-0", "1:0", "MIG-GPU-1_1_0", "all"}, names)
	require.Len(t, spec.ContainerEdits.Hooks, 1)
	args, unknown, err := hookargs.Decode(spec.ContainerEdits.Hooks[0].Args)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Contains(t, args.Libraries, hookargs.Library{Path: "/usr/lib/i386-linux-gnu/libcuda.so." + fakehost.DriverVersion, SONAME: "libcuda.so.1", Is32Bit: true})
	require.Contains(t, args.Links, hookargs.Link{Path: "/dev/dri/by-path/pci-0000:07:00.0-render", Target: "../renderD128"})
	require.NotEmpty(t, spec.ContainerEdits.Hooks[0].Env, "a hook without an environment inherits the container's")

	_, err = cdi.EncodeSpec(spec, cdi.JSON, "0.5.0")
	require.NoError(t, err)
	spec.Kind = "nvidia.com/gpu.coherent"
	_, err = cdi.EncodeSpec(spec, cdi.JSON, "0.5.0")
	require.ErrorContains(t, err, "above the cap 0.5.0")
}

func TestFlattenForTheHookMovesEveryMount(t *testing.T) {
	t.Parallel()
	res := generate(t, inventory(), node(t, "ubuntu"))
	flat := specgen.Flattening{Kind: "nvidia.com/gpu", Capabilities: cdi.AllCapabilities(), Names: []specgen.Naming{specgen.ByIndex}}
	by, err := res.Flatten(flat)
	require.NoError(t, err)
	flat.HookMounts = true
	spec, err := res.Flatten(flat)
	require.NoError(t, err)
	args, _, err := hookargs.Decode(spec.ContainerEdits.Hooks[0].Args)
	require.NoError(t, err)
	require.Empty(t, spec.ContainerEdits.Mounts)
	require.Len(t, args.Mounts, len(by.ContainerEdits.Mounts))
	kinds := map[string]hookargs.MountKind{}
	for k, m := range by.ContainerEdits.Mounts {
		require.Equal(t, m.ContainerPath, args.Mounts[k].Path)
		require.Equal(t, m.HostPath, args.Mounts[k].Source)
		kinds[m.ContainerPath] = args.Mounts[k].Kind
	}
	require.Equal(t, hookargs.MountRequired, kinds["/usr/lib/x86_64-linux-gnu/libcuda.so."+fakehost.DriverVersion])
	require.Equal(t, hookargs.MountOptional, kinds["/usr/bin/nvidia-smi"])
	args.Mounts = nil
	require.Equal(t, by.ContainerEdits.Hooks[0].Args, args.Encode(), "the rest of the command line is the same")
}

func TestFlattenOfNothingSaysWhy(t *testing.T) {
	t.Parallel()
	inv := inventory()
	inv.Driver = device.Driver{State: device.DriverNotLoaded, Reason: "load it"}
	_, err := generate(t, inv, node(t, "ubuntu")).Flatten(specgen.Flattening{Kind: "nvidia.com/gpu"})
	require.ErrorContains(t, err, "load it")
}
