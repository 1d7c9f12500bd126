package health

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Action is what an XID asks for.
type Action string

// The actions, by weight.
const (
	// Ignore: nothing; the card works on.
	Ignore Action = "ignore"
	// RestartApp: the application that met the error must be restarted, which it
	// learns from CUDA; the card works on.
	RestartApp Action = "restart-app"
	// Reset: the card must be reset before it is used again.
	Reset Action = "reset"
	// Reboot: the node must be rebooted.
	Reboot Action = "reboot"
	// Replace: somebody must look at the card. Nothing that the node can see
	// clears it; `gpuctl uncordon` does.
	Replace Action = "replace"
)

// actions in the order of their weight.
func actions() []Action { return []Action{Ignore, RestartApp, Reset, Reboot, Replace} }

// fatal tells whether a card must not be used until the action was taken.
func (a Action) fatal() bool { return a == Reset || a == Reboot || a == Replace }

// next is what a person has to do.
func (a Action) next() string {
	switch a {
	case Reset:
		return "drain the card and reset it (`nvidia-smi --gpu-reset`), or reboot the node"
	case Reboot:
		return "reboot the node"
	case Replace:
		return "have the card looked at, then `gpuctl uncordon` it"
	case Ignore, RestartApp:
	}
	return ""
}

// Policy says what each XID asks for. The zero value is not usable; make one
// with ParsePolicy.
type Policy struct {
	actions  map[uint64]Action
	fallback Action
}

// Of returns the action for an XID.
func (p Policy) Of(xid uint64) Action {
	if a, ok := p.actions[xid]; ok {
		return a
	}
	return p.fallback
}

const (
	// fallbackKey is the policy's word for XIDs that it does not list, and allKey
	// for those that it does.
	fallbackKey = "default"
	allKey      = "all"
)

// ParsePolicy returns NVIDIA's classes, changed by entries such as "94=reset",
// "default=ignore" and "all=ignore", in their order.
func ParsePolicy(entries []string) (Policy, error) {
	p := Policy{actions: defaults(), fallback: Reset}
	for _, e := range entries {
		key, value, ok := strings.Cut(e, "=")
		action := Action(strings.TrimSpace(value))
		if !ok || !slices.Contains(actions(), action) {
			return Policy{}, fmt.Errorf("XID policy %q is not of the form XID=ACTION with one of the actions %v", e, actions())
		}
		switch key = strings.TrimSpace(key); key {
		case fallbackKey:
			p.fallback = action
			continue
		case allKey:
			for xid := range p.actions {
				p.actions[xid] = action
			}
			continue
		}
		xid, err := strconv.ParseUint(key, 10, 32)
		if err != nil {
			return Policy{}, fmt.Errorf("XID policy %q: %q is neither a number nor %q or %q", e, key, fallbackKey, allKey)
		}
		p.actions[xid] = action
	}
	return p, nil
}

// Entries lists the policy in the form that ParsePolicy reads, sorted.
func (p Policy) Entries() []string {
	var out []string
	for _, xid := range slices.Sorted(maps.Keys(p.actions)) {
		out = append(out, fmt.Sprintf("%d=%s", xid, p.actions[xid]))
	}
	return append(out, fmt.Sprintf("%s=%s", fallbackKey, p.fallback))
}

// defaults are the immediate actions of NVIDIA's XID catalogue
// (docs.nvidia.com/deploy/xid-errors, for Ampere and newer): IGNORE and
// UPDATE_SWFW, RESTART_APP, RESET_GPU and the workflows that begin with it,
// RESTART_BM and RESTART_VM, CHECK_MECHANICALS. What is not listed there as in
// use asks for a reset, as every unknown error does. 154 only repeats what
// another XID said, and is read from the card as its recovery action.
func defaults() map[uint64]Action {
	out := map[uint64]Action{}
	for action, xids := range map[Action][]uint64{
		Ignore: {37, 38, 43, 44, 63, 66, 67, 78, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 154, 157, 160, 161, 162, 163, 164, 165, 168},
		RestartApp: {
			8, 13, 31, 32, 39, 40, 41, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94, 96, 97, 98, 99, 100, 101,
			102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139, 142, 159,
		},
		Reset:   {46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148, 149, 150, 155, 156, 158, 167, 169, 171, 172},
		Reboot:  {79, 151},
		Replace: {54},
	} {
		for _, x := range xids {
			out[x] = action
		}
	}
	return out
}

// describe is what an XID is called, for the ones that people meet.
func describe(xid uint64) string {
	names := map[uint64]string{
		13: "graphics engine exception", 31: "GPU memory page fault", 43: "GPU stopped processing", 45: "preemptive cleanup",
		46: "GPU stopped processing", 48: "double-bit ECC error", 54: "auxiliary power is not connected", 62: "internal micro-controller halt",
		63: "GPU memory remapping event", 64: "GPU memory remapping failure", 74: "NVLink error", 79: "GPU has fallen off the bus",
		92: "high single-bit ECC error rate", 94: "contained memory error", 95: "uncontained memory error", 109: "context switch timeout",
		110: "security fault", 119: "GSP RPC timeout", 120: "GSP error", 136: "link training failed", 140: "unrecovered ECC error",
		143: "GPU initialisation error", 154: "GPU recovery action changed", 158: "GPU fatal timeout",
	}
	if name, ok := names[xid]; ok {
		return fmt.Sprintf("XID %d (%s)", xid, name)
	}
	return fmt.Sprintf("XID %d", xid)
}
