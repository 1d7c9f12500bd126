package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	"github.com/nri-gpu/nri-gpu/internal/testutil/golden"
)

// dgx is a node with eight cards.
type dgx struct {
	roots     roots.Roots
	hook      string
	inventory string
	inv       device.Inventory
}

func newDGX(t *testing.T) *dgx {
	t.Helper()
	d := &dgx{roots: roots.Roots{Dev: t.TempDir(), Host: t.TempDir()}, inventory: filepath.Join(t.TempDir(), "inventory.json"), hook: filepath.Join(t.TempDir(), "gpu-hook")}
	require.NoError(t, os.WriteFile(d.hook, []byte("#!/bin/sh\n"), 0o755))
	d.inv.Driver = device.Driver{State: device.DriverReady, Version: fakehost.DriverVersion, CUDAVersion: "12.2"}
	for i, bus := range []int{0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd} {
		d.inv.GPUs = append(d.inv.GPUs, device.GPU{
			UUID: fmt.Sprintf("GPU-a1000000-0000-4000-8000-%012d", i), Index: i, Minor: 7 - i, PCIBusID: fmt.Sprintf("0000:%02x:00.0", bus),
			Model: "NVIDIA A100-SXM4-40GB", NUMANode: i / 4, Health: device.Health{Healthy: true},
		})
	}
	require.NoError(t, fakeroot.Make(d.roots.Host, fakeroot.Options{Layout: "ubuntu", Version: fakehost.DriverVersion}))
	require.NoError(t, fakehost.Make(d.roots, d.inv))
	data, err := json.Marshal(d.inv)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(d.inventory, data, 0o644))
	return d
}

func (d *dgx) generate(t *testing.T, more ...string) (string, error) {
	t.Helper()
	return gpuctl(t, append([]string{
		"cdi", "generate", "--inventory", d.inventory, "--dev-root", d.roots.Dev, "--host-root", d.roots.Host, "--hook-path", d.hook,
	}, more...)...)
}

func gpuctl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestGenerateWritesASpecThatListAndValidateRead(t *testing.T) {
	t.Parallel()
	d := newDGX(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "nvidia.yaml")
	_, err := d.generate(t, "--output", file, "--cdi-version", "0.5.0")
	require.NoError(t, err)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(data), "cdiVersion: 0.5.0")
	require.NotContains(t, string(data), "major:", "numbers may change with the next boot")

	out, err := gpuctl(t, "cdi", "list", "--spec-dir", dir)
	require.NoError(t, err)
	require.Equal(t, 8*2+1, strings.Count(out, "nvidia.com/gpu="))
	require.Contains(t, out, "nvidia.com/gpu=all\n")
	out, err = gpuctl(t, "cdi", "validate", file)
	require.NoError(t, err)
	require.Contains(t, out, "ok")

	require.NoError(t, os.Remove(d.roots.DevPath("/dev/nvidia3")))
	_, err = gpuctl(t, "cdi", "validate", file)
	require.ErrorContains(t, err, "dev/nvidia3")

	_, err = d.generate(t, "--output", filepath.Join(dir, "other.json"))
	require.ErrorContains(t, err, file)
	require.ErrorContains(t, err, "uses neither")
	require.NoFileExists(t, filepath.Join(dir, "other.json"))
}

func TestGenerateLeavesOutACardThatIsNotUsableAndSaysSo(t *testing.T) {
	t.Parallel()
	d := newDGX(t)
	require.NoError(t, os.Remove(d.roots.DevPath("/dev/nvidia7")))
	out, err := d.generate(t, "--create-device-nodes=false", "--format", "json")
	require.NoError(t, err)
	require.Contains(t, out, "left out GPU-a1000000-0000-4000-8000-000000000000: its device node is not usable")
	require.Contains(t, out, `"name": "1"`)
	require.NotContains(t, out, `"name": "0"`)

	out, err = d.generate(t, "--format", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"name": "0"`, "a node that is missing is made")
}

func TestGenerateReportsWhatItLookedFor(t *testing.T) {
	t.Parallel()
	out, err := newDGX(t).generate(t, "--report")
	require.NoError(t, err)
	require.Contains(t, out, `"versionFrom": "kernel module"`)
	require.Contains(t, out, `"name": "libnvidia-fbc.so.535.309.01"`)
}

func TestBadCommandLinesAreUsageErrors(t *testing.T) {
	t.Parallel()
	d := newDGX(t)
	for arg, want := range map[string]string{
		"--kind=gpu":                 "vendor/class",
		"--kind=nvidia.com/g pu":     "--kind",
		"--capabilities=telepathy":   "telepathy",
		"--device-names=serial":      "serial",
		"--format=toml":              "toml",
		"--output=/x/nvidia.yml":     ".yml",
		"--no-such-flag":             "no-such-flag",
		"--dev-root=relative":        "dev-root",
		"--config=/does/not/exist.y": "/does/not/exist.y",
	} {
		_, err := d.generate(t, arg)
		require.ErrorContains(t, err, want, arg)
		require.Equal(t, 2, cli.Status(err), arg)
	}
}

func TestANodeWithoutADriverSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := gpuctl(t, "cdi", "generate", "--host-root", t.TempDir(), "--dev-root", t.TempDir(), "--create-device-nodes=false")
	require.ErrorContains(t, err, "the PCI bus has no NVIDIA GPU")
}

func TestSimulateGolden(t *testing.T) {
	t.Parallel()
	d := newDGX(t)
	res, err := specgen.Generate(t.Context(), d.inv, specgen.Config{Roots: d.roots, HookPath: d.hook})
	require.NoError(t, err)
	dir := state.Dir(t.TempDir())
	_, err = res.Publish(dir)
	require.NoError(t, err)
	requests, err := filepath.Glob("testdata/*.request.json")
	require.NoError(t, err)
	require.NotEmpty(t, requests)
	for _, request := range requests {
		out, err := gpuctl(t, "simulate", "-f", request, "--state-dir", string(dir), "--data-dir", t.TempDir())
		require.NoError(t, err, request)
		out = strings.NewReplacer(d.roots.Dev, "{{dev}}", d.roots.Host, "{{host}}", d.hook, "{{hook}}").Replace(out)
		golden.Equal(t, strings.Replace(request, ".request.json", ".golden.json", 1), out)
	}
}

func TestSimulateRefusesWhatIsNotARequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"pods": []}`), 0o644))
	_, err := gpuctl(t, "simulate", "-f", file)
	require.Equal(t, 2, cli.Status(err))
	require.ErrorContains(t, err, file)
	_, err = gpuctl(t, "simulate")
	require.Equal(t, 2, cli.Status(err))
}
