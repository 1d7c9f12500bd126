package cdi

import (
	"fmt"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// FileOptions are the mount options of a driver file: private, so that a host
// whose mounts are shared does not multiply them.
func FileOptions() []string { return []string{"ro", "nosuid", "nodev", "rbind", "rprivate"} }

// SocketOptions are those of a socket, which a client must be able to write.
func SocketOptions() []string { return []string{"nosuid", "nodev", "rbind", "rprivate", "noexec"} }

// HookMount returns a mount as gpu-hook makes it; false for one that it does
// not make, which is left to the runtime.
func HookMount(destination, source string, options []string, required bool) (hookargs.Mount, bool) {
	m := hookargs.Mount{Path: destination, Source: source}
	sorted := slices.Sorted(slices.Values(options))
	switch {
	case strings.Contains(destination, "="):
		return m, false // its command line has none in a path
	case slices.Equal(sorted, slices.Sorted(slices.Values(FileOptions()))) && required:
		m.Kind = hookargs.MountRequired
	case slices.Equal(sorted, slices.Sorted(slices.Values(FileOptions()))):
		m.Kind = hookargs.MountOptional
	case slices.Equal(sorted, slices.Sorted(slices.Values(SocketOptions()))) && !required:
		m.Kind = hookargs.MountSocket
	default:
		return m, false
	}
	return m, true
}

// Hook returns the injection's gpu-hook; nil when it has none.
func (i *Injection) Hook() *oci.Hook {
	if i.Hooks == nil {
		return nil
	}
	for k := range i.Hooks.CreateContainer {
		if h := &i.Hooks.CreateContainer[k]; hookargs.IsHook(h.Args) {
			return h
		}
	}
	return nil
}

// AddHookMounts gives mounts to a gpu-hook.
func AddHookMounts(h *oci.Hook, mounts []hookargs.Mount) error {
	args, _, err := hookargs.Decode(h.Args)
	if err != nil {
		return fmt.Errorf("the arguments of %s: %w", h.Path, err)
	}
	h.Args = hookargs.Merge(args, hookargs.Args{Mounts: mounts}).Encode()
	return nil
}

// MountByHook moves the mounts that gpu-hook can make into its command line,
// and leaves the others; all of them where there is no gpu-hook.
func MountByHook(edits specs.ContainerEdits, required func(containerPath string) bool) specs.ContainerEdits {
	var mounts []hookargs.Mount
	var rest []*specs.Mount
	for _, m := range edits.Mounts {
		if hm, ok := HookMount(m.ContainerPath, m.HostPath, m.Options, required(m.ContainerPath)); ok {
			mounts = append(mounts, hm)
		} else {
			rest = append(rest, m)
		}
	}
	for k, h := range edits.Hooks {
		args, _, err := hookargs.Decode(h.Args)
		if err != nil || !hookargs.IsHook(h.Args) {
			continue
		}
		with := *h
		with.Args = hookargs.Merge(args, hookargs.Args{Mounts: mounts}).Encode()
		edits.Hooks = slices.Clone(edits.Hooks)
		edits.Hooks[k], edits.Mounts = &with, rest
		return edits
	}
	return edits
}

// MergeHooks makes one hook of all that are gpu-hook's.
func MergeHooks(hooks []*specs.Hook) []*specs.Hook {
	var merged hookargs.Args
	var out []*specs.Hook
	var ours *specs.Hook
	for _, h := range hooks {
		args, _, err := hookargs.Decode(h.Args)
		if !hookargs.IsHook(h.Args) || err != nil {
			out = append(out, h)
			continue
		}
		merged = hookargs.Merge(merged, args)
		if ours == nil {
			c := *h
			ours = &c
			out = append(out, ours)
		}
		ours.Args = merged.Encode()
	}
	return out
}

// JoinEdits appends edits: each variable once, each node and mount once by its
// container path.
func JoinEdits(a, b specs.ContainerEdits) specs.ContainerEdits {
	for _, n := range b.DeviceNodes {
		if !slices.ContainsFunc(a.DeviceNodes, func(m *specs.DeviceNode) bool { return m.Path == n.Path }) {
			a.DeviceNodes = append(a.DeviceNodes, n)
		}
	}
	for _, n := range b.Mounts {
		if !slices.ContainsFunc(a.Mounts, func(m *specs.Mount) bool { return m.ContainerPath == n.ContainerPath }) {
			a.Mounts = append(a.Mounts, n)
		}
	}
	for _, e := range b.Env {
		if !slices.Contains(a.Env, e) { // two cards of one resource say the same
			a.Env = append(a.Env, e)
		}
	}
	a.Hooks = append(a.Hooks, b.Hooks...)
	return a
}
