package resources

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// Separator stands between a UUID and a replica's number in a device ID, as
// NVIDIA's exporters read it.
const Separator = "::"

// Plan is what a node offers.
type Plan struct {
	// Resources are sorted by name; one without a device is not among them.
	Resources []Resource
	// Problems say what is not offered, and why; sorted.
	Problems []string
}

// Resource is one extended resource with its devices.
type Resource struct {
	Name string
	// Strategy is that of the replicas; empty when nothing is shared.
	Strategy Strategy
	// FailMultiple refuses more than one device for a container.
	FailMultiple bool
	// Packed prefers cards that are in use.
	Packed bool
	// Devices are sorted by card and replica.
	Devices []Device
}

// Device is what the kubelet holds one of.
type Device struct {
	// ID is the UUID, with Separator and a number for a replica.
	ID string
	device.Allocatable
}

// Make plans an inventory.
func Make(inv *device.Inventory, cfg *Config) Plan {
	p := planner{cfg: cfg, offers: map[string]*Resource{}, problems: map[string]bool{}}
	byResource := p.assign(inv)
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		p.share(name, byResource[name])
	}
	var out Plan
	for _, name := range slices.Sorted(maps.Keys(p.offers)) {
		out.Resources = append(out.Resources, *p.offers[name])
	}
	out.Problems = slices.Sorted(maps.Keys(p.problems))
	return out
}

type planner struct {
	cfg      *Config
	offers   map[string]*Resource
	problems map[string]bool
}

func (p *planner) problem(format string, args ...any) {
	p.problems[fmt.Sprintf(format, args...)] = true
}

// assign gives each device its resource.
func (p *planner) assign(inv *device.Inventory) map[string][]device.Allocatable {
	out := map[string][]device.Allocatable{}
	add := func(resource string, a device.Allocatable) { out[resource] = append(out[resource], a) }
	for _, a := range p.candidates(inv) {
		switch {
		case a.MIG == nil:
			add(p.named(p.cfg.GPUs, a.GPU.Model, p.cfg.Whole), a)
		case p.cfg.MIG == MIGSingle:
			add(p.named(p.cfg.MIGs, a.MIG.Profile, p.cfg.Whole), a)
		default:
			if name, ok := p.migResource(a); ok {
				add(name, a)
			}
		}
	}
	return out
}

// candidates are the devices that the MIG strategy offers at all.
func (p *planner) candidates(inv *device.Inventory) []device.Allocatable {
	all := inv.Devices()
	whole := func(a device.Allocatable) bool { return a.MIG == nil }
	switch p.cfg.MIG {
	case MIGSingle:
		return p.single(inv)
	case MIGMixed:
		p.emptyGPUs(inv)
		return slices.DeleteFunc(all, func(a device.Allocatable) bool { return whole(a) && a.GPU.MIGEnabled })
	default:
		return slices.DeleteFunc(all, func(a device.Allocatable) bool { return !whole(a) })
	}
}

// emptyGPUs reports cards in MIG mode that have nothing to offer.
func (p *planner) emptyGPUs(inv *device.Inventory) {
	for i := range inv.GPUs {
		if g := &inv.GPUs[i]; g.MIGEnabled && len(g.MIGDevices) == 0 {
			p.problem("%s is in MIG mode and has no MIG device; create some (`nvidia-smi mig -cgi … -C`), or switch MIG off", g.UUID)
		}
	}
}

// single takes the profile that most MIG devices have, since one resource must
// be one kind of thing; on a node without MIG devices, the whole cards.
func (p *planner) single(inv *device.Inventory) []device.Allocatable {
	p.emptyGPUs(inv)
	all := inv.Allocatables()
	count := map[string]int{}
	for _, a := range all {
		if a.MIG != nil {
			count[a.MIG.Profile]++
		}
	}
	if len(count) == 0 {
		return all
	}
	profiles := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
	return slices.DeleteFunc(all, func(a device.Allocatable) bool {
		switch {
		case a.MIG == nil:
			p.problem("%s is not in MIG mode, and the MIG strategy %q offers MIG devices only, of profile %s; use the strategy %q", a.UUID, MIGSingle, profiles[0], MIGMixed)
			return true
		case a.MIG.Profile != profiles[0]:
			p.problem("%s is of profile %s, and the MIG strategy %q offers one profile, %s; use the strategy %q", a.UUID, a.MIG.Profile, MIGSingle, profiles[0], MIGMixed)
			return true
		}
		return false
	})
}

// migResource is mig-<profile>, with what a resource's name may not hold
// replaced.
func (p *planner) migResource(a device.Allocatable) (string, bool) {
	standard := path.Join(path.Dir(p.cfg.Whole), "mig-"+strings.ReplaceAll(a.MIG.Profile, "+", "."))
	name := p.named(p.cfg.MIGs, a.MIG.Profile, standard)
	if err := ValidName(name); a.MIG.Profile == "" || err != nil {
		p.problem("%s has the profile %q, of which no resource's name can be made; give it one under resources.mig", a.UUID, a.MIG.Profile)
		return "", false
	}
	return name, true
}

func (p *planner) named(patterns []Pattern, name, otherwise string) string {
	for _, pattern := range patterns {
		if fits(pattern.Pattern, name) {
			return pattern.Resource
		}
	}
	return otherwise
}

// offer returns the resource to add devices to.
func (p *planner) offer(name string) *Resource {
	if p.offers[name] == nil {
		p.offers[name] = &Resource{Name: name, Packed: p.cfg.Packed}
	}
	return p.offers[name]
}

// share offers the devices of a resource, each once or as often as the first
// share that selects it says.
func (p *planner) share(name string, devices []device.Allocatable) {
	left := devices
	for i := range p.cfg.Shares {
		s := &p.cfg.Shares[i]
		if s.Resource != name {
			continue
		}
		var selected []device.Allocatable
		selected, left = s.Devices.split(left)
		if len(selected) > 0 {
			p.replicate(cmp.Or(s.Rename, name), s, selected)
		}
	}
	if len(left) == 0 {
		return
	}
	r := p.offer(name)
	for _, a := range left {
		r.Devices = append(r.Devices, Device{ID: a.UUID, Allocatable: a})
	}
}

func (p *planner) replicate(name string, s *Share, devices []device.Allocatable) {
	r := p.offer(name)
	r.Strategy, r.FailMultiple = s.Strategy, r.FailMultiple || s.FailMultiple
	for _, a := range devices {
		if s.Strategy == MPS && a.MIG != nil {
			p.problem("%s is a MIG device, which MPS does not share; it is not offered under %s", a.UUID, name)
			continue
		}
		for n := range s.Replicas {
			r.Devices = append(r.Devices, Device{ID: fmt.Sprintf("%s%s%d", a.UUID, Separator, n), Allocatable: a})
		}
	}
}

// split returns the devices that are selected, and the others.
func (s *Selector) split(devices []device.Allocatable) (selected, others []device.Allocatable) {
	for i, a := range devices {
		if s.selects(i, a) {
			selected = append(selected, a)
		} else {
			others = append(others, a)
		}
	}
	return selected, others
}

func (s *Selector) selects(position int, a device.Allocatable) bool {
	if s.Count > 0 {
		return position < s.Count
	}
	return len(s.List) == 0 || slices.ContainsFunc(s.List, func(want string) bool {
		if model, ok := strings.CutPrefix(want, "model="); ok {
			return fits(model, a.GPU.Model) || a.MIG != nil && fits(model, a.MIG.Profile)
		}
		return want == a.UUID || want == a.Index() || a.MIG != nil && want == a.GPU.UUID
	})
}
