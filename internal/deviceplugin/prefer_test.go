package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// linked gives an inventory a link for each pair.
func linked(inv device.Inventory, link func(i, j int) device.Link) device.Inventory {
	for i := range inv.GPUs {
		for j := i + 1; j < len(inv.GPUs); j++ {
			l := link(i, j)
			l.A, l.B = pair(inv.GPUs[i].UUID, inv.GPUs[j].UUID)[0], pair(inv.GPUs[i].UUID, inv.GPUs[j].UUID)[1]
			inv.Links = append(inv.Links, l)
		}
	}
	return inv
}

// pcieOnly is 8 cards: pairs (0,1) (2,3) … share a switch, 0–3 and 4–7 a node.
func pcieOnly() device.Inventory {
	return linked(gpus(8), func(i, j int) device.Link {
		switch {
		case i/2 == j/2:
			return device.Link{PCIe: device.PCIeSingleSwitch}
		case i/4 == j/4:
			return device.Link{PCIe: device.PCIeSameNode}
		}
		return device.Link{PCIe: device.PCIeSystem}
	})
}

// cubeMesh is a DGX-1: NVLinks within the halves and between i and i+4.
func cubeMesh() device.Inventory {
	return linked(gpus(8), func(i, j int) device.Link {
		switch {
		case i/4 == j/4 && (i^j == 3 || i^j == 1):
			return device.Link{NVLinks: 2, PCIe: device.PCIeSingleSwitch}
		case i/4 == j/4 || j == i+4:
			return device.Link{NVLinks: 1, PCIe: device.PCIeSystem}
		}
		return device.Link{PCIe: device.PCIeSystem}
	})
}

// switched is a DGX A100: every pair has the same NVLinks through switches.
func switched() device.Inventory {
	inv := pcieOnly()
	for i := range inv.Links {
		inv.Links[i].NVLinks = 12
	}
	return inv
}

func ids(numbers ...int) []string {
	out := make([]string, 0, len(numbers))
	for _, n := range numbers {
		out = append(out, fmt.Sprintf("GPU-%d", n))
	}
	return out
}

func TestNearDevicesArePreferred(t *testing.T) {
	t.Parallel()
	all := ids(0, 1, 2, 3, 4, 5, 6, 7)
	for name, c := range map[string]struct {
		inv             device.Inventory
		available, must []string
		size            int
		want            []string
	}{
		"two behind one switch":                             {pcieOnly(), all, nil, 2, ids(0, 1)},
		"four of one NUMA node":                             {pcieOnly(), ids(1, 2, 3, 4, 5, 6, 7), nil, 4, ids(4, 5, 6, 7)},
		"a pair is kept whole: the single card is taken":    {pcieOnly(), ids(0, 1, 3), nil, 1, ids(3)},
		"the partner of the one that must be there":         {pcieOnly(), all, ids(5), 2, ids(5, 4)},
		"the half of a cube mesh":                           {cubeMesh(), all, nil, 4, ids(0, 1, 2, 3)},
		"behind NVSwitches, those near by PCIe":             {switched(), ids(0, 2, 5, 6, 7), nil, 2, ids(6, 7)},
		"more than there are: all":                          {pcieOnly(), ids(3, 1), nil, 5, ids(1, 3)},
		"as many as there are":                              {pcieOnly(), ids(3, 1), nil, 2, ids(1, 3)},
		"none":                                              {pcieOnly(), all, nil, 0, nil},
		"a negative number":                                 {pcieOnly(), all, nil, -3, nil},
		"nothing available":                                 {pcieOnly(), nil, nil, 1, nil},
		"more must be there than are wanted":                {pcieOnly(), all, ids(7, 6, 5), 2, ids(5, 6)},
		"what must be there need not be available":          {pcieOnly(), ids(0, 1), ids(9), 2, append(ids(9), ids(0)...)},
		"unknown cards":                                     {pcieOnly(), ids(21, 20), nil, 1, ids(20)},
		"a card given twice":                                {pcieOnly(), ids(2, 2, 3, 3), nil, 2, ids(2, 3)},
		"nothing is known of the links":                     {gpus(4), ids(0, 1, 2, 3), nil, 2, ids(0, 1)},
		"replicas of different cards":                       {pcieOnly(), []string{"GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"}, nil, 2, []string{"GPU-0::0", "GPU-1::0"}},
		"a replica of the card that is used least":          {pcieOnly(), []string{"GPU-0::0", "GPU-1::0", "GPU-1::1"}, nil, 1, []string{"GPU-1::0"}},
		"a MIG device of the card that has the fewest free": {withMIG(), []string{"MIG-0-0", "MIG-0-1", "MIG-0-2", "MIG-1-2"}, nil, 1, []string{"MIG-1-2"}},
		"MIG devices of one card":                           {withMIG(), []string{"MIG-0-0", "MIG-1-1", "MIG-1-2"}, nil, 2, []string{"MIG-1-1", "MIG-1-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := prefer(newTopology(c.inv), false, c.available, c.must, c.size)
			require.Equal(t, c.want, got)
		})
	}
}

// withMIG is two cards of three MIG devices each.
func withMIG() device.Inventory {
	inv := gpus(2)
	for i := range inv.GPUs {
		inv.GPUs[i].MIGEnabled = true
		for j := range 3 {
			inv.GPUs[i].MIGDevices = append(inv.GPUs[i].MIGDevices, device.MIGDevice{UUID: fmt.Sprintf("MIG-%d-%d", i, j)})
		}
	}
	return inv
}

// points is how good a set is, computed from the topology alone.
func points(t *topology, set []string) int {
	sum := 0
	for i, a := range set {
		for _, b := range set[:i] {
			sum += t.between(uuidOf(a), uuidOf(b))
		}
	}
	return sum
}

func TestWhateverIsAskedTheAnswerHasTheRightShapeAndIsTheSameTwice(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	topologies := []*topology{newTopology(pcieOnly()), newTopology(cubeMesh()), newTopology(withMIG()), newTopology(gpus(0))}
	for range 3000 {
		topo := topologies[random.IntN(len(topologies))]
		var available []string
		for range random.IntN(12) {
			available = append(available, fmt.Sprintf("GPU-%d", random.IntN(9)))
		}
		var must []string
		if len(available) > 0 && random.IntN(2) == 0 {
			must = available[:random.IntN(len(available))]
		}
		size := random.IntN(10)
		got := prefer(topo, false, available, must, size)

		require.Equal(t, got, prefer(topo, false, shuffled(random, available), shuffled(random, must), size))
		require.Len(t, unique(got), len(got))
		require.Len(t, got, min(size, len(unique(append(slices.Clone(available), must...)))))
		for _, id := range got {
			require.Contains(t, append(slices.Clone(available), must...), id)
		}
		if size >= len(unique(must)) {
			require.Subset(t, got, must)
		}
		for range 20 { // no random set of that size may be better
			others := shuffled(random, unique(available))
			if len(must) == 0 && len(others) >= size {
				require.GreaterOrEqual(t, points(topo, got), points(topo, others[:size]))
			}
		}
	}
}

func shuffled(random *rand.Rand, ids []string) []string {
	out := slices.Clone(ids)
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func TestTheChoiceTakesBoundedTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ cards, replicas, size int }{
		"8 of 16 cards, all sets":          {16, 1, 8},
		"16 of 64 cards":                   {64, 1, 16},
		"50 of 1600 replicas":              {16, 100, 50},
		"more replicas than are looked at": {16, 100, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inv := linked(gpus(c.cards), func(i, j int) device.Link { return device.Link{NVLinks: (i * j) % 3} })
			var available []string
			for i := range c.cards {
				for r := range c.replicas {
					available = append(available, fmt.Sprintf("GPU-%d::%d", i, r))
				}
			}
			begin := time.Now()
			got := prefer(newTopology(inv), false, available, nil, c.size)
			require.Less(t, time.Since(begin), 2*time.Second, "a bound that a loaded machine keeps, and a search of all sets does not")
			require.Len(t, got, min(c.size, maxCandidates))
		})
	}
}

func TestTheGreedySearchFindsTheIslandOfALargeNode(t *testing.T) {
	t.Parallel()
	// 40 cards in islands of 8 that NVLink joins: too many sets to try all.
	inv := linked(gpus(40), func(i, j int) device.Link {
		if i%5 == j%5 {
			return device.Link{NVLinks: 4}
		}
		return device.Link{PCIe: device.PCIeSystem}
	})
	var available []string
	for i := range 40 {
		available = append(available, fmt.Sprintf("GPU-%d", i))
	}
	topo := newTopology(inv)
	require.Greater(t, sets(40, 8), maxSets)
	require.Equal(t, 28*4*pointsNVLink, points(topo, prefer(topo, false, available, nil, 8)))
}

func TestThePreferenceIsAnsweredForEachContainer(t *testing.T) {
	t.Parallel()
	_, client := registered(t, pcieOnly())
	resp, err := client.GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: ids(1, 2, 3), AllocationSize: 2},
		{AvailableDeviceIDs: ids(1, 2), AllocationSize: 7},
		{},
	}})
	require.NoError(t, err)
	var got [][]string
	for _, c := range resp.GetContainerResponses() {
		got = append(got, c.GetDeviceIDs())
	}
	require.Equal(t, [][]string{ids(2, 3), ids(1, 2), nil}, got)
}

func BenchmarkPreferEightOfSixteen(b *testing.B) {
	topo := newTopology(linked(gpus(16), func(i, j int) device.Link { return device.Link{NVLinks: (i + j) % 4} }))
	available := ids(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	for b.Loop() {
		prefer(topo, false, available, nil, 8)
	}
}
