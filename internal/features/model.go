package features

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// model is the cards of one model, sorted by index.
type model struct {
	name  string
	cards []*device.GPU
	// tagged says that another model of the node looks the same in a key.
	tagged bool
}

func (m *model) key(attribute string) string { return modelKey(m.name, attribute, m.tagged) }

// groupByModel returns the models of a node, the largest first; among equals by
// name. Cards without a name come last, since they can label nothing. A card
// that is not healthy counts here, so that losing it does not make another
// model the largest.
func groupByModel(gpus []device.GPU) []model {
	byName := map[string]*model{}
	for i := range gpus {
		g := &gpus[i]
		if byName[g.Model] == nil {
			byName[g.Model] = &model{name: g.Model}
		}
		byName[g.Model].cards = append(byName[g.Model].cards, g)
	}
	alike := map[string]int{}
	for name := range byName {
		alike[sanitise(name)]++
	}
	var out []model
	for _, m := range byName {
		m.tagged = alike[sanitise(m.name)] > 1
		slices.SortFunc(m.cards, func(a, b *device.GPU) int { return cmp.Or(a.Index-b.Index, strings.Compare(a.UUID, b.UUID)) })
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b model) int {
		return cmp.Or(boolean(a.name == "")-boolean(b.name == ""), len(b.cards)-len(a.cards), strings.Compare(a.name, b.name))
	})
	return out
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *model) healthy() int {
	n := 0
	for _, g := range m.cards {
		n += boolean(g.Health.Healthy)
	}
	return n
}

// replicas is what every card of the model is sure to have; 0 when none is
// served as a whole.
func (m *model) replicas(sharing *Sharing) int {
	least := 0
	for _, g := range m.cards {
		if g.MIGEnabled {
			continue
		}
		if n := sharing.replicas(g.UUID, sharing.gpuResource()); least == 0 || n < least {
			least = n
		}
	}
	return least
}

// memory is what every card of the model is sure to have, in bytes; 0 when no
// card's is known.
func (m *model) memory() uint64 {
	var least uint64
	for _, g := range m.cards {
		if g.MemoryBytes != 0 && (least == 0 || g.MemoryBytes < least) {
			least = g.MemoryBytes
		}
	}
	return least
}

// compute is the compute capability, "8.0", of the first card that tells.
func (m *model) compute() string {
	for _, g := range m.cards {
		if g.ComputeCapability != "" {
			return g.ComputeCapability
		}
	}
	return ""
}

// family is the architecture as the label writes it; empty when nothing is
// known that it follows from.
func (m *model) family() string {
	architecture := ""
	for _, g := range m.cards {
		architecture = cmp.Or(architecture, g.Architecture)
	}
	return cmp.Or(family(m.compute()), architecture, undefined(m.compute()))
}

// undefined is what GPU feature discovery writes for a capability that it does
// not know.
func undefined(compute string) string {
	if compute == "" {
		return ""
	}
	return "undefined"
}

// family follows from the CUDA compute capability.
func family(compute string) string {
	major, minor, _ := strings.Cut(compute, ".")
	m, err := strconv.Atoi(minor)
	if err != nil {
		return ""
	}
	switch {
	case major == "7" && m < 5:
		return "volta"
	case major == "8" && m >= 9:
		return "ada-lovelace"
	}
	return map[string]string{
		"1": "tesla", "2": "fermi", "3": "kepler", "5": "maxwell", "6": "pascal", "7": "turing", "8": "ampere",
		"9": "hopper", "10": "blackwell", "12": "blackwell", "13": "rubin",
	}[major]
}
