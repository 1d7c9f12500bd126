package inject_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	"github.com/nri-gpu/nri-gpu/internal/testutil/golden"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

const (
	gpu0 = "nri-gpu.io/gpu=GPU-0"
	gpu1 = "nri-gpu.io/gpu=GPU-1"
)

// node is a node with two cards, of which GPU-sick is not usable.
type node struct {
	*inject.Injector
	roots    roots.Roots
	hook     string
	resolver *cdi.Resolver
	keys     *cdi.Keyring
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	n := &node{roots: roots.Roots{Dev: tb.TempDir(), Host: tb.TempDir()}, hook: filepath.Join(tb.TempDir(), "gpu-hook")}
	require.NoError(tb, os.WriteFile(n.hook, []byte("#!/bin/sh\n"), 0o755))
	inv := device.Inventory{
		Driver: device.Driver{State: device.DriverReady, Version: fakehost.DriverVersion},
		GPUs: []device.GPU{
			{UUID: "GPU-0", Minor: 0, PCIBusID: "0000:07:00.0", Health: device.Health{Healthy: true}},
			{UUID: "GPU-1", Minor: 1, PCIBusID: "0000:0f:00.0", Health: device.Health{Healthy: true}},
		},
	}
	require.NoError(tb, fakeroot.Make(n.roots.Host, fakeroot.Options{Layout: "ubuntu", Version: fakehost.DriverVersion}))
	require.NoError(tb, fakehost.Make(n.roots, inv))
	res, err := specgen.Generate(tb.Context(), inv, specgen.Config{Roots: n.roots, HookPath: n.hook})
	require.NoError(tb, err)
	dir := state.Dir(tb.TempDir())
	_, err = res.Publish(dir)
	require.NoError(tb, err)
	n.resolver = cdi.NewResolver(dir.SpecDir(), nil)
	require.NoError(tb, n.resolver.Load())
	n.keys, err = cdi.LoadOrCreateKeyring(filepath.Join(tb.TempDir(), "alloc.key"))
	require.NoError(tb, err)
	n.Injector = &inject.Injector{
		Resolver: n.resolver,
		Health: func(name string) string {
			return map[string]string{"GPU-sick": "nvmlDeviceGetHandleByIndex: GPU is lost"}[name]
		},
		Devices: func() []string { return append(n.resolver.Devices(), "GPU-sick") },
		Keys:    func() *cdi.Keyring { return n.keys },
		Policy:  inject.Policy{Capabilities: cdi.AllCapabilities(), ExemptHandlers: []string{"legacy"}, ExemptNamespaces: []string{"gpu-operator"}, ManagementNamespaces: []string{"gpu-monitoring"}},
	}
	return n
}

func pod() *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox", Name: "train", Namespace: "ml", Uid: "uid-1"}
}

// container is what a runtime shows of a container with these names.
func container(names ...string) *api.Container {
	c := &api.Container{Id: "c1", Name: "main", Env: []string{"PATH=/bin"}, Mounts: []*api.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs"},
		{Destination: "/etc/hosts", Type: "bind", Source: "/x"},
	}}
	for _, n := range names {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: n})
	}
	if len(names) > 0 {
		c.Mounts = append(c.Mounts, guard())
	}
	return c
}

func guard() *api.Mount {
	return &api.Mount{Destination: cdi.GuardPath, Type: "bind", Source: "/nowhere"}
}

func (n *node) golden(t *testing.T, name string, got string) {
	t.Helper()
	text := strings.NewReplacer(n.roots.Dev, "{{dev}}", n.roots.Host, "{{host}}", n.hook, "{{hook}}").Replace(got)
	golden.Equal(t, filepath.Join("testdata", name), text)
}

func TestAContainerOfNobodysConcernGetsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for name, c := range map[string]*api.Container{
		"plain":                container(),
		"another vendor's":     {CDIDevices: []*api.CDIDevice{{Name: "example.com/net=0"}}},
		"visible is void":      {Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}},
		"capabilities only":    {Env: []string{"NVIDIA_DRIVER_CAPABILITIES=telepathy"}},
		"someone's annotation": {Annotations: map[string]string{"alloc.example.com/x": "y"}},
	} {
		d, err := n.Decide(pod(), c)
		require.NoError(t, err, name)
		require.Nil(t, d, name)
	}
}

func TestGoldenAdjustments(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*api.Container){
		"one-gpu": func(*api.Container) {},
		"two-gpus": func(c *api.Container) {
			c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: gpu1}, &api.CDIDevice{Name: gpu1})
		},
		"all-capabilities": func(c *api.Container) {
			c.Env = append(c.Env, "NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_VISIBLE_DEVICES=all")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := container(gpu0)
			change(c)
			d, err := n.Decide(pod(), c)
			require.NoError(t, err)
			// protojson varies its white space on purpose; the indented form does not.
			text := protojson.MarshalOptions{Multiline: true, Indent: "  "}.Format(d.Adjustment)
			n.golden(t, name+".json", strings.ReplaceAll(text, ":  ", ": ")+"\n")
		})
	}
}

func TestEveryKeyOccursOnce(t *testing.T) {
	t.Parallel()
	c := container(gpu0, gpu1, gpu0)
	c.Env = append(c.Env, "NVIDIA_DRIVER_CAPABILITIES=all")
	d, err := newNode(t).Decide(pod(), c)
	require.NoError(t, err)
	require.Len(t, d.Names, 2)
	seen := map[string]bool{}
	once := func(key string) { require.False(t, seen[key], key); seen[key] = true }
	for _, m := range d.Adjustment.GetMounts() {
		once("mount " + m.GetDestination())
	}
	for _, dev := range d.Adjustment.GetLinux().GetDevices() {
		once("device " + dev.GetPath())
	}
	for _, e := range d.Adjustment.GetEnv() {
		once("env " + e.GetKey())
	}
	require.Len(t, d.Adjustment.GetHooks().GetCreateContainer(), 1)
	require.Len(t, d.Adjustment.GetLinux().GetResources().GetDevices(), len(d.Adjustment.GetLinux().GetDevices()), "a rule for each node")
}

func TestGoldenRefusals(t *testing.T) {
	t.Parallel()
	type change = func(n *node, pod *api.PodSandbox, c *api.Container)
	for name, change := range map[string]change{
		"malformed-name":     func(_ *node, _ *api.PodSandbox, c *api.Container) { c.CDIDevices[0].Name = "nri-gpu.io/gpu" },
		"another-kind":       func(_ *node, _ *api.PodSandbox, c *api.Container) { c.CDIDevices[0].Name = "nri-gpu.io/driver=compute" },
		"unknown-name":       func(_ *node, _ *api.PodSandbox, c *api.Container) { c.CDIDevices[0].Name = "nri-gpu.io/gpu=GPU-9" },
		"unhealthy-name":     func(_ *node, _ *api.PodSandbox, c *api.Container) { c.CDIDevices[0].Name = "nri-gpu.io/gpu=GPU-sick" },
		"guard-without-name": func(_ *node, _ *api.PodSandbox, c *api.Container) { c.CDIDevices = nil },
		"node-is-gone": func(n *node, _ *api.PodSandbox, _ *api.Container) {
			_ = os.Remove(n.roots.DevPath("/dev/nvidia0"))
		},
		"driver-file-is-gone": func(n *node, _ *api.PodSandbox, _ *api.Container) {
			_ = os.Remove(filepath.Join(n.roots.Host, "usr/lib/x86_64-linux-gnu/libcuda.so."+fakehost.DriverVersion))
		},
		"annotation-on-pod": func(_ *node, p *api.PodSandbox, _ *api.Container) {
			p.Annotations = map[string]string{"alloc.nri-gpu.io/nvidia.com_gpu": "x"}
		},
		"forged-annotation": func(_ *node, _ *api.PodSandbox, c *api.Container) {
			c.CDIDevices = nil
			c.Annotations = map[string]string{"alloc.nri-gpu.io/nvidia.com_gpu": "v1.e30.AAAA"}
		},
		"visible-devices-twice": func(_ *node, _ *api.PodSandbox, c *api.Container) {
			c.Env = append(c.Env, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=0")
		},
		"unknown-capability": func(_ *node, _ *api.PodSandbox, c *api.Container) {
			c.Env = append(c.Env, "NVIDIA_DRIVER_CAPABILITIES=compute,telepathy")
		},
		"capability-not-allowed": func(n *node, _ *api.PodSandbox, c *api.Container) {
			n.Policy.Capabilities = cdi.DefaultCapabilities()
			c.Env = append(c.Env, "NVIDIA_DRIVER_CAPABILITIES=compute,video")
		},
		"volume-over-library": func(_ *node, _ *api.PodSandbox, c *api.Container) {
			c.Mounts = append(c.Mounts, &api.Mount{Destination: "/usr/lib/x86_64-linux-gnu", Type: "bind", Source: "/data"})
		},
		"volume-over-dev": func(_ *node, _ *api.PodSandbox, c *api.Container) {
			c.Mounts = append(c.Mounts, &api.Mount{Destination: "/dev", Type: "bind", Source: "/dev"})
		},
		"user-namespace": func(_ *node, _ *api.PodSandbox, c *api.Container) {
			c.Linux = &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "user"}}}
		},
		"no-gds": func(_ *node, _ *api.PodSandbox, c *api.Container) { c.Env = append(c.Env, "NVIDIA_GDS=enabled") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			p, c := pod(), container(gpu0)
			change(n, p, c)
			_, err := n.Decide(p, c)
			var refusal *inject.Refusal
			require.ErrorAs(t, err, &refusal)
			require.NotEmpty(t, refusal.Next)
			n.golden(t, "refused-"+name+".txt", err.Error()+"\n")
		})
	}
}

func TestASignedAnnotationIsAsGoodAsTheTypedList(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	token, err := n.keys.Sign(cdi.Grant{Resource: "nvidia.com/gpu", Names: []string{gpu1}})
	require.NoError(t, err)
	c := container()
	c.Mounts = append(c.Mounts, guard())
	c.Annotations = map[string]string{cdi.AnnotationKey("nvidia.com/gpu"): token}
	d, err := n.Decide(pod(), c)
	require.NoError(t, err)
	require.Equal(t, []cdi.Name{{Kind: cdi.KindGPU, Device: "GPU-1"}}, d.Names)
	require.Equal(t, cdi.CarrierAnnotation, d.Carrier)

	c.Annotations = map[string]string{cdi.AnnotationKey("example.com/other"): token}
	_, err = n.Decide(pod(), c)
	require.ErrorIs(t, err, cdi.ErrToken, "a token stands only under its own resource")

	c.Annotations = map[string]string{cdi.AnnotationKey("nvidia.com/gpu"): token, "restored": "true"}
	_, err = n.Decide(pod(), c)
	require.ErrorContains(t, err, "checkpoint")

	other, err := cdi.LoadOrCreateKeyring(filepath.Join(t.TempDir(), "other.key"))
	require.NoError(t, err)
	n.keys = other
	c.Annotations = map[string]string{cdi.AnnotationKey("nvidia.com/gpu"): token}
	_, err = n.Decide(pod(), c)
	require.ErrorIs(t, err, cdi.ErrToken, "another node's token")
	n.keys = nil
	_, err = n.Decide(pod(), c)
	require.ErrorContains(t, err, "no signing key")
}

func TestVisibleDevicesIsTakenBackWithOrWithoutAGPU(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := container()
	c.Env = append(c.Env, "NVIDIA_VISIBLE_DEVICES=all")
	d, err := n.Decide(pod(), c)
	require.NoError(t, err)
	require.Empty(t, d.Names)
	require.Equal(t, "void", d.Adjustment.GetEnv()[0].GetValue())
	require.Empty(t, d.Adjustment.GetLinux().GetDevices())

	exempt := pod()
	exempt.Namespace = "gpu-operator"
	d, err = n.Decide(exempt, c)
	require.NoError(t, err)
	require.Nil(t, d)
	exempt = pod()
	exempt.RuntimeHandler = "legacy"
	d, err = n.Decide(exempt, c)
	require.NoError(t, err)
	require.Nil(t, d)
}

func TestAnOptionalFileGivesWayToAVolume(t *testing.T) {
	t.Parallel()
	c := container(gpu0)
	c.Mounts = append(c.Mounts, &api.Mount{Destination: "/usr/bin", Type: "bind", Source: "/data"})
	d, err := newNode(t).Decide(pod(), c)
	require.NoError(t, err)
	require.NotEmpty(t, d.Skipped)
	require.Contains(t, d.Skipped[0], "/usr/bin/nvidia-")
	for _, m := range d.Adjustment.GetMounts() {
		require.False(t, strings.HasPrefix(m.GetDestination(), "/usr/bin/"), m.GetDestination())
	}
}

func TestARestrictedNodeBecomesTheContainersUsers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	require.NoError(t, os.Chmod(n.roots.DevPath("/dev/nvidia0"), 0o660))
	c := container(gpu0)
	c.User = &api.User{Uid: 1234, Gid: 5678}
	d, err := n.Decide(pod(), c)
	require.NoError(t, err)
	for _, dev := range d.Adjustment.GetLinux().GetDevices() {
		if dev.GetPath() == "/dev/nvidia0" {
			require.Equal(t, []uint32{1234, 5678, 0o660}, []uint32{dev.GetUid().GetValue(), dev.GetGid().GetValue(), dev.GetFileMode().GetValue()})
		} else {
			require.Zero(t, dev.GetUid().GetValue(), dev.GetPath())
		}
	}
}

// A card that is shared by MPS comes with shared memory of its daemon's.
func TestThePodsOwnSharedMemoryIsNoVolume(t *testing.T) {
	t.Parallel()
	for source, volume := range map[string]bool{
		"/run/containerd/io.containerd.grpc.v1.cri/sandboxes/abc/shm": false, "/dev/shm": true, "/home/u/shm": true, "/sandboxes/shm": true,
	} {
		n := newNode(t)
		n.Resolver = withShm{n.resolver}
		c := container(gpu0)
		c.Mounts = append(c.Mounts, &api.Mount{Destination: "/dev/shm", Type: "bind", Source: source})
		d, err := n.Decide(pod(), c)
		require.NoError(t, err)
		require.Equal(t, volume, len(d.Skipped) > 0, source)
	}
}

// withShm adds a mount to what is resolved.
type withShm struct{ inject.Resolver }

func (r withShm) Resolve(req cdi.Request) (*cdi.Injection, error) {
	inj, err := r.Resolver.Resolve(req)
	if err == nil {
		inj.Mounts = append(inj.Mounts, oci.Mount{Source: "/run/mps/shm", Destination: "/dev/shm"})
	}
	return inj, err
}
