package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// The modes that the others are compared with.
const (
	plain   = "plain"
	control = "control"
	peer    = "peer"
)

// mode is one way to make a container.
type mode struct {
	name, what string
	device     string // CDI name; empty for a container without a GPU
	env        []string
}

// card is the card of the machine t4x1.
const card = "GPU-74000000-0000-4000-8000-000000000000"

// modes writes the specs that containerd injects from, each of a kind of its
// own. nri-gpu is connected in every mode, and looks at every container.
func modes(ctx context.Context, s *stack.Stack) ([]mode, error) {
	all := []mode{
		{name: plain, what: "no GPU"},
		{name: control, what: "no GPU again"},
		{name: "nri", what: "nri-gpu, capabilities compute and utility", device: cdi.KindGPU + "=" + card},
		{name: "nri_all", what: "nri-gpu, all capabilities", device: cdi.KindGPU + "=" + card, env: []string{"NVIDIA_DRIVER_CAPABILITIES=all"}},
		{name: "cdi", what: "the spec of --injection=cdi, all capabilities", device: "ours.bench/gpu=0"},
		{name: peer, what: "nvidia-ctk's spec with nvidia-cdi-hook", device: "peer.bench/gpu=0"},
		{name: "floor_nodes", what: "our device nodes, nothing else", device: "floor.bench/gpu=nodes"},
		{name: "floor_mount", what: "one file mounted by runc", device: "floor.bench/gpu=mount"},
		{name: "floor_hook", what: "one static createContainer hook that does nothing", device: "floor.bench/gpu=hook"},
	}
	ours, err := generate(ctx, s, filepath.Join(s.Bin, "gpuctl"), "--kind", "ours.bench/gpu", "--driver-mounts", "hook",
		"--host-root", s.Node.Roots.Host, "--hook-path", filepath.Join(s.Bin, "gpu-hook"))
	if err != nil {
		return nil, err
	}
	theirs, err := generate(ctx, s, s.Tools.Path("nvidia-ctk"), "--mode", "nvml", "--vendor", "peer.bench", "--class", "gpu",
		"--nvidia-cdi-hook-path", s.Tools.Path("nvidia-cdi-hook"))
	if err != nil {
		return nil, err
	}
	fmt.Printf("bench: ours has %s; the peer's has %s\n", size(ours), size(theirs))
	return all, floors(ours, filepath.Join(s.Bin, "gpu-hook"))
}

// generate writes a spec for the node's driver with a program whose command line
// is nvidia-ctk's, as gpuctl's is.
func generate(ctx context.Context, s *stack.Stack, program string, args ...string) (*specs.Spec, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out := filepath.Join(harness.CDIDir, filepath.Base(program)+".json")
	if err := os.MkdirAll(harness.CDIDir, 0o755); err != nil {
		return nil, err
	}
	args = append([]string{"cdi", "generate", "--output", out, "--driver-root", s.Node.Roots.Driver, "--dev-root", s.Node.Roots.Dev}, args...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), s.Node.Env()...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{}
	return spec, json.Unmarshal(data, spec)
}

func size(s *specs.Spec) string {
	mounts, hooks := 0, 0
	for _, e := range append([]specs.ContainerEdits{s.ContainerEdits}, s.Devices[0].ContainerEdits) {
		mounts += len(e.Mounts)
		hooks += len(e.Hooks)
	}
	return fmt.Sprintf("%d mounts for the runtime and %d hooks", mounts, hooks)
}

// floors writes what the least of each part costs.
func floors(ours *specs.Spec, file string) error {
	nodes := slices.Concat(ours.ContainerEdits.DeviceNodes, ours.Devices[0].ContainerEdits.DeviceNodes)
	spec := &specs.Spec{Version: ours.Version, Kind: "floor.bench/gpu", Devices: []specs.Device{
		{Name: "nodes", ContainerEdits: specs.ContainerEdits{DeviceNodes: nodes}},
		{Name: "mount", ContainerEdits: specs.ContainerEdits{Mounts: []*specs.Mount{{HostPath: file, ContainerPath: "/usr/bin/floor", Options: cdi.FileOptions()}}}},
		{Name: "hook", ContainerEdits: specs.ContainerEdits{Hooks: []*specs.Hook{
			{HookName: "createContainer", Path: "/usr/bin/busybox", Args: []string{"busybox", "true"}, Env: []string{"PATH=/usr/bin"}},
		}}},
	}}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(harness.CDIDir, "floor.json"), data, 0o644)
}
