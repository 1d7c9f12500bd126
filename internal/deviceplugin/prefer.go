package deviceplugin

import (
	"cmp"
	"slices"
)

const (
	// maxSets bounds the exact search: the number of sets of the wanted size.
	// 8 of 16 GPUs are 12870, searched in about a millisecond.
	maxSets = 20_000
	// maxSeeds bounds the greedy search's attempts.
	maxSeeds = 64
	// maxCandidates bounds both, whatever a kubelet asks: those beyond, in order
	// of ID, are not looked at. With 16 cards in MIG mode there are 112.
	maxCandidates = 256
)

// prefer chooses size of the available device IDs, those of must included: the
// set whose members are nearest to each other, and among equals the one that
// is least connected to what is left, so that a good group is kept whole for
// the next container. A single device is therefore the least connected one, and
// a MIG device one of the card with the fewest free. Replicas are of cards that
// have the most free, or the fewest when packed; two of one card are the last
// resort. Equal sets are told apart by ID, so the same question has the same
// answer.
//
// Too few candidates, unknown and repeated IDs are no errors: the kubelet
// fills up or cuts what it gets, and rejects the pod for good on an error.
func prefer(t *topology, packed bool, available, must []string, size int) []string {
	must = unique(must)
	if size <= 0 {
		return nil
	}
	if len(must) >= size {
		return must[:size]
	}
	rest := slices.DeleteFunc(unique(available), func(id string) bool { return slices.Contains(must, id) })
	rest = rest[:min(len(rest), maxCandidates)]
	if len(must)+len(rest) <= size {
		return append(must, rest...)
	}
	c := newChooser(t, packed, append(must, rest...), len(must), size)
	if sets(len(rest), size-len(must)) <= maxSets {
		c.exact(len(must))
	} else {
		c.greedy()
	}
	return c.answer()
}

func unique(ids []string) []string {
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}

// sets is the number of k-subsets of n, or more than maxSets when it is more.
func sets(n, k int) int {
	if k > n-k {
		k = n - k
	}
	total := 1
	for i := range k {
		total = total * (n - i) / (i + 1)
		if total > maxSets {
			return total
		}
	}
	return total
}

// chooser searches among candidates, which are indices into ids; the first
// fixed of them are in every set.
type chooser struct {
	ids    []string
	size   int
	fixed  int
	points [][]int
	// all is the sum of a candidate's points with every other card.
	all []int
	// use is how much a candidate's card is wanted for how many of its replicas
	// are free: less is better.
	use []int

	set  []int // the set under examination
	best []int
	// near, used and cut are those of best.
	near, used, cut int
}

func newChooser(t *topology, packed bool, ids []string, fixed, size int) *chooser {
	c := &chooser{ids: ids, size: size, fixed: fixed, points: make([][]int, len(ids)), all: make([]int, len(ids)), use: make([]int, len(ids))}
	perFree := -1
	if packed {
		perFree = 1
	}
	for i := range ids {
		c.points[i] = make([]int, len(ids))
		for j := range ids {
			if i == j {
				continue
			}
			c.points[i][j] = t.between(uuidOf(ids[i]), uuidOf(ids[j]))
			if c.points[i][j] == pointsReplica {
				c.use[i] += perFree
				continue
			}
			c.all[i] += c.points[i][j]
		}
	}
	for i := range fixed {
		c.set = append(c.set, i)
	}
	return c
}

// exact examines every set that extends the current one by candidates from the
// given one on.
func (c *chooser) exact(from int) {
	if len(c.set) == c.size {
		c.consider()
		return
	}
	missing := c.size - len(c.set)
	for i := from; i <= len(c.ids)-missing; i++ {
		c.set = append(c.set, i)
		c.exact(i + 1)
		c.set = c.set[:len(c.set)-1]
	}
}

// greedy grows a set from each seed by the candidate that is nearest to it.
func (c *chooser) greedy() {
	for seed := c.fixed; seed < min(len(c.ids), c.fixed+maxSeeds); seed++ {
		c.grow(seed)
		c.consider()
	}
}

func (c *chooser) grow(seed int) {
	c.set = c.set[:c.fixed]
	// near is each candidate's sum of points with the set; taken are its members.
	near, taken := make([]int, len(c.ids)), make([]bool, len(c.ids))
	take := func(i int) {
		taken[i] = true
		for j := range near {
			near[j] += c.points[i][j]
		}
	}
	for _, i := range c.set {
		take(i)
	}
	for next := seed; ; next = c.nearest(near, taken) {
		c.set = append(c.set, next)
		if len(c.set) == c.size {
			return
		}
		take(next)
	}
}

// nearest is the candidate that is not taken with the most points towards the
// set, then of the most wanted card, then with the fewest points towards all
// others, then the first.
func (c *chooser) nearest(near []int, taken []bool) int {
	best := -1
	for i := range near {
		if taken[i] {
			continue
		}
		if best < 0 || cmp.Or(near[best]-near[i], c.use[i]-c.use[best], c.all[i]-c.all[best]) < 0 {
			best = i
		}
	}
	return best
}

// consider keeps the set when it is better than the best one so far; the first
// of equals stays.
func (c *chooser) consider() {
	near, used, all := 0, 0, 0
	for n, i := range c.set {
		all += c.all[i]
		used += c.use[i]
		for _, j := range c.set[:n] {
			near += c.points[i][j]
		}
	}
	cut := all - 2*near
	if c.best == nil || cmp.Or(c.near-near, used-c.used, cut-c.cut) < 0 {
		c.best, c.near, c.used, c.cut = slices.Clone(c.set), near, used, cut
	}
}

func (c *chooser) answer() []string {
	out := make([]string, len(c.best))
	for n, i := range c.best {
		out[n] = c.ids[i]
	}
	return out
}
