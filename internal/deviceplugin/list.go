package deviceplugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// reasonGone is the health of a device that an inventory no longer has.
const reasonGone = "the device was listed before and the driver no longer reports it"

// reasonWithdrawn is the health of a device that the node has and the
// configuration no longer offers under this resource.
const reasonWithdrawn = "the node's configuration no longer offers it under this resource"

// snapshot is what is advertised at one time. Nothing in it changes once it is
// published, so any number of streams may send it at once.
type snapshot struct {
	// devices are sorted by ID.
	devices []*pluginapi.Device
	// health has each device's, by ID.
	health map[string]device.Health
	// uuids are those of the devices; a replica's is its card's.
	uuids        map[string]bool
	topology     *topology
	failMultiple bool
	packed       bool
	// replaced is closed when a newer snapshot is there.
	replaced chan struct{}
}

// list holds the current snapshot.
type list struct {
	mu      sync.Mutex // serialises set
	current atomic.Pointer[snapshot]
}

func newList() *list {
	l := &list{}
	l.current.Store(newSnapshot(resources.Resource{}, device.Inventory{}))
	return l
}

func newSnapshot(r resources.Resource, inv device.Inventory) *snapshot {
	s := &snapshot{
		health: map[string]device.Health{}, uuids: map[string]bool{}, topology: newTopology(inv),
		failMultiple: r.FailMultiple, packed: r.Packed, replaced: make(chan struct{}),
	}
	for _, d := range r.Devices {
		s.add(advertised(d), d.Health)
	}
	return s
}

func (l *list) load() *snapshot { return l.current.Load() }

// change is a device whose health is another than before.
type change struct {
	id     string
	isNew  bool
	health device.Health
}

// set publishes the devices of a resource together with those that were listed
// before and are gone, which are unhealthy. It reports what changed, in order of
// ID; streams wake only when what they send has changed.
func (l *list) set(r resources.Resource, inv device.Inventory) []change {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.load()
	next := newSnapshot(r, inv)
	for _, d := range old.devices {
		if _, listed := next.health[d.GetID()]; !listed {
			next.add(gone(d), device.Health{Reason: whyGone(d.GetID(), &inv)})
		}
	}
	slices.SortFunc(next.devices, func(a, b *pluginapi.Device) int { return cmp.Compare(a.GetID(), b.GetID()) })

	if slices.EqualFunc(old.devices, next.devices, sameDevice) {
		// Only what streams do not send may differ: the topology and the
		// reasons. They keep waiting on the old snapshot's channel.
		next.replaced = old.replaced
		l.current.Store(next)
		return changes(old, next)
	}
	l.current.Store(next)
	close(old.replaced)
	return changes(old, next)
}

func (s *snapshot) add(d *pluginapi.Device, h device.Health) {
	s.devices = append(s.devices, d)
	s.health[d.GetID()] = h
	s.uuids[uuidOf(d.GetID())] = true
}

// count is the number of devices by whether they are healthy.
func (s *snapshot) count() (healthy, unhealthy int) {
	for _, h := range s.health {
		if h.Healthy {
			healthy++
		} else {
			unhealthy++
		}
	}
	return healthy, unhealthy
}

func changes(old, next *snapshot) []change {
	var out []change
	for _, id := range slices.Sorted(maps.Keys(next.health)) {
		before, known := old.health[id]
		if now := next.health[id]; !known || now != before {
			out = append(out, change{id: id, isNew: !known, health: now})
		}
	}
	return out
}

func advertised(a resources.Device) *pluginapi.Device {
	d := &pluginapi.Device{ID: a.ID, Health: pluginapi.Unhealthy}
	if a.Health.Healthy {
		d.Health = pluginapi.Healthy
	}
	// A negative node would be refused or, worse, believed.
	if a.GPU.NUMANode >= 0 {
		d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(a.GPU.NUMANode)}}}
	}
	return d
}

func gone(d *pluginapi.Device) *pluginapi.Device {
	return &pluginapi.Device{ID: d.GetID(), Health: pluginapi.Unhealthy, Topology: d.GetTopology()}
}

// whyGone tells a device that the node no longer has from one that it offers
// otherwise now.
func whyGone(id string, inv *device.Inventory) string {
	if _, here := inv.Find(uuidOf(id)); here {
		return reasonWithdrawn
	}
	if d := inv.Driver; d.State != device.DriverReady && d.Reason != "" {
		return fmt.Sprintf("the driver is %s: %s", d.State, d.Reason)
	}
	return reasonGone
}

func sameDevice(a, b *pluginapi.Device) bool {
	return a.GetID() == b.GetID() && a.GetHealth() == b.GetHealth() && numaNode(a) == numaNode(b)
}

func numaNode(d *pluginapi.Device) int64 {
	if nodes := d.GetTopology().GetNodes(); len(nodes) > 0 {
		return nodes[0].GetID()
	}
	return -1
}

// uuidOf strips the replica suffix of a device ID.
func uuidOf(id string) string {
	uuid, _, _ := strings.Cut(id, resources.Separator)
	return uuid
}
