package cdi

import (
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

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
