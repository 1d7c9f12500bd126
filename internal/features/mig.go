package features

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// migDevice is a MIG device with its card.
type migDevice struct {
	gpu *device.GPU
	mig *device.MIGDevice
}

// profile is the MIG devices of one profile on cards of one model, sorted by
// card and index.
type profile struct {
	// profile is "mig-" and the name as resource names write it: "mig-1g.10gb.me".
	profile string
	model   string
	devices []migDevice
}

// profileName is the name of a profile in keys, resource names and products;
// no "+" may occur in them.
func profileName(name string) string { return strings.ReplaceAll(name, "+", ".") }

// groupByProfile returns the MIG devices of some cards, sorted by profile, and
// for each profile by number of devices, the largest first, then by model.
func groupByProfile(cards []*device.GPU) []profile {
	type key struct{ profile, model string }
	byKey := map[key]*profile{}
	for _, g := range cards {
		if !g.MIGEnabled {
			continue
		}
		for i := range g.MIGDevices {
			m := &g.MIGDevices[i]
			k := key{profileName(m.Profile), g.Model}
			if k.profile == "" {
				continue // nothing can be said about it
			}
			if byKey[k] == nil {
				byKey[k] = &profile{profile: "mig-" + k.profile, model: k.model}
			}
			byKey[k].devices = append(byKey[k].devices, migDevice{g, m})
		}
	}
	var out []profile
	for _, p := range byKey {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b profile) int {
		return cmp.Or(strings.Compare(a.profile, b.profile), len(b.devices)-len(a.devices), strings.Compare(a.model, b.model))
	})
	return out
}

func advertisesMIG(s *Sharing) bool {
	return s.MIGStrategy == resources.MIGSingle || s.MIGStrategy == resources.MIGMixed
}

// mig writes the keys of the MIG strategy. In the strategy single they take the
// place of the card's.
func (l labels) mig(models []model, sharing *Sharing) {
	if !advertisesMIG(sharing) {
		return
	}
	l.set("mig.strategy", string(sharing.MIGStrategy))
	var cards []*device.GPU
	for i := range models {
		cards = append(cards, models[i].cards...)
	}
	profiles := groupByProfile(cards)
	switch {
	case sharing.MIGStrategy == resources.MIGMixed:
		l.mixed(profiles, sharing)
	case !slices.ContainsFunc(cards, func(g *device.GPU) bool { return g.MIGEnabled }):
	case uniform(cards, profiles):
		l.devices("gpu", &profiles[0], profiles[0].replicas(sharing, sharing.gpuResource()), sharing)
	default:
		l.invalid(models[0].name)
	}
}

// mixed describes each profile by the model that has the most of it.
func (l labels) mixed(profiles []profile, sharing *Sharing) {
	for i := range profiles {
		p := &profiles[i]
		if i == 0 || p.profile != profiles[i-1].profile {
			l.devices(p.profile, p, p.replicas(sharing, sharing.migResource(p.profile)), sharing)
		}
	}
}

// invalid is what GPU feature discovery says of a layout that the strategy
// single does not allow. The models' own keys say what there is.
func (l labels) invalid(model string) {
	l.replace("gpu.product", product(model, "-MIG-INVALID"))
	for _, key := range []string{"gpu.count", "gpu.replicas", "gpu.memory"} {
		l.replace(key, "0")
	}
	l.replace("gpu.sharing-strategy", strategyNone)
}

// uniform tells whether every card is in MIG mode, has a MIG device, and all
// devices are alike. A card that is not healthy says nothing about the layout,
// unless none is.
func uniform(cards []*device.GPU, profiles []profile) bool {
	known := slices.DeleteFunc(slices.Clone(cards), func(g *device.GPU) bool { return !g.Health.Healthy })
	if len(known) == 0 {
		known = cards
	}
	for _, g := range known {
		if !g.MIGEnabled || len(g.MIGDevices) == 0 {
			return false
		}
	}
	if len(profiles) != 1 {
		return false
	}
	first := profiles[0].attributes()
	return !slices.ContainsFunc(profiles[0].devices, func(d migDevice) bool {
		return d.mig.Attributes != nil && *d.mig.Attributes != *first
	})
}

func (p *profile) healthy() int {
	n := 0
	for _, d := range p.devices {
		n += boolean(d.mig.Health.Healthy && d.gpu.Health.Healthy)
	}
	return n
}

// replicas is what every device is sure to have.
func (p *profile) replicas(sharing *Sharing, resource string) int {
	least := 0
	for _, d := range p.devices {
		if n := sharing.replicas(d.mig.UUID, resource); least == 0 || n < least {
			least = n
		}
	}
	return least
}

// memory is what every device is sure to have, in bytes; 0 when unknown.
func (p *profile) memory() uint64 {
	var least uint64
	for _, d := range p.devices {
		if b := d.mig.MemoryBytes; b != 0 && (least == 0 || b < least) {
			least = b
		}
	}
	return least
}

// attributes are those of the first device whose are known, or nil.
func (p *profile) attributes() *device.MIGAttributes {
	for _, d := range p.devices {
		if d.mig.Attributes != nil {
			return d.mig.Attributes
		}
	}
	return nil
}

// devices writes the keys of MIG devices below a name.
func (l labels) devices(name string, p *profile, replicas int, sharing *Sharing) {
	suffix := "-MIG-" + strings.TrimPrefix(p.profile, "mig-") + sharing.suffix(replicas)
	l.replace(name+".product", product(p.model, suffix))
	l.replace(name+".count", strconv.Itoa(p.healthy()))
	l.replace(name+".replicas", strconv.Itoa(replicas))
	l.replace(name+".sharing-strategy", sharing.strategy(replicas))
	l.replace(name+".memory", mebibytes(p.memory()))
	a := p.attributes()
	if a == nil {
		return
	}
	for key, n := range map[string]int{
		"multiprocessors": a.Multiprocessors, "slices.gi": a.GPUSlices, "slices.ci": a.ComputeSlices,
		"engines.copy": a.CopyEngines, "engines.decoder": a.Decoders, "engines.encoder": a.Encoders,
		"engines.jpeg": a.JPEGEngines, "engines.ofa": a.OFAEngines,
	} {
		l.set(name+"."+key, strconv.Itoa(n))
	}
}
