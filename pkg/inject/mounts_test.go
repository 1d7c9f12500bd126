package inject_test

import (
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

// mountsOf returns a decision's mounts by their place: those of the runtime and
// those of the hook.
func mountsOf(t *testing.T, d *inject.Decision) (runtime, hook map[string]string) {
	t.Helper()
	runtime, hook = map[string]string{}, map[string]string{}
	for _, m := range d.Adjustment.GetMounts() {
		if m.GetSource() != "" { // the guard's removal has none
			runtime[m.GetDestination()] = m.GetSource()
		}
	}
	args, unknown, err := hookargs.Decode(d.Adjustment.GetHooks().GetCreateContainer()[0].GetArgs())
	require.NoError(t, err)
	require.Empty(t, unknown)
	for _, m := range args.Mounts {
		hook[m.Path] = m.Source
	}
	return runtime, hook
}

func everything(t *testing.T, n *node, change func(*api.Container)) *inject.Decision {
	t.Helper()
	c := container(gpu0)
	c.Env = append(c.Env, "NVIDIA_DRIVER_CAPABILITIES=all")
	change(c)
	d, err := n.Decide(pod(), c)
	require.NoError(t, err)
	return d
}

func TestTheHookMountsWhatTheRuntimeWould(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	want, none := mountsOf(t, everything(t, n, func(*api.Container) {}))
	require.Empty(t, none)
	require.Greater(t, len(want), 10)
	n.HookMounts = true
	none, got := mountsOf(t, everything(t, n, func(*api.Container) {}))
	require.Empty(t, none)
	require.Equal(t, want, got)
	none, again := mountsOf(t, everything(t, n, func(*api.Container) {}))
	require.Empty(t, none)
	require.Equal(t, want, again, "the specs in memory are as they were")
}

// sameNodes is a node whose device nodes are where the container sees them, as
// a user namespace needs it.
type sameNodes struct{ inject.Resolver }

func (r sameNodes) Resolve(req cdi.Request) (*cdi.Injection, error) {
	inj, err := r.Resolver.Resolve(req)
	if err == nil {
		for p := range inj.HostNodes {
			inj.HostNodes[p] = p
		}
	}
	return inj, err
}

func TestWhatTheHookCannotMountTheRuntimeDoes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	all, _ := mountsOf(t, everything(t, n, func(*api.Container) {}))
	n.HookMounts, n.Resolver = true, sameNodes{n.Resolver}
	for name, c := range map[string]struct {
		change func(*api.Container)
		moved  func(path string) bool
	}{
		"a user namespace": {func(c *api.Container) {
			c.Linux = &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "user"}}}
		}, func(string) bool { return false }},
		"a file system of the runtime's at /run": {func(c *api.Container) {
			c.Mounts = append(c.Mounts, &api.Mount{Destination: "/run", Type: "tmpfs", Source: "tmpfs"})
		}, func(path string) bool { return !strings.HasPrefix(path, "/run/") }},
	} {
		runtime, hook := mountsOf(t, everything(t, n, c.change))
		for p := range all {
			require.Equal(t, c.moved(p), hook[p] != "", "%s: %s", name, p)
			require.NotEqual(t, hook[p] != "", runtime[p] != "", "%s: %s", name, p)
		}
	}
}

func TestAVolumeInTheWayIsDecidedBeforeTheHook(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.HookMounts = true
	_, all := mountsOf(t, everything(t, n, func(*api.Container) {}))
	d := everything(t, n, func(c *api.Container) {
		c.Mounts = append(c.Mounts, &api.Mount{Destination: "/usr/bin", Type: "bind", Source: "/volume"})
	})
	runtime, hook := mountsOf(t, d)
	require.Empty(t, runtime)
	require.NotEmpty(t, d.Skipped)
	require.Less(t, len(hook), len(all))
	require.NotContains(t, hook, "/usr/bin/nvidia-smi")

	c := container(gpu0)
	c.Mounts = append(c.Mounts, &api.Mount{Destination: "/usr/lib", Type: "bind", Source: "/volume"})
	_, err := n.Decide(pod(), c)
	require.ErrorContains(t, err, "the pod's own volume")
}
