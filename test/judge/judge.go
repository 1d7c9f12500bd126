package judge

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// Resource is what the scenarios' pods ask for.
const Resource = "nvidia.com/gpu"

// Manager is a kubelet's device manager, in words that no version changes.
type Manager interface {
	Pods
	// Stop ends it as a kubelet that is stopped does.
	Stop() error
	// Capacity is that of Resource.
	Capacity() (capacity, allocatable int64)
}

// Pods are the calls about one pod.
type Pods interface {
	// Allocate admits the only container of a pod.
	Allocate(pod string, devices int) error
	// Devices lists what the pod was allocated, sorted.
	Devices(pod string) []string
	// Names lists the CDI names that the container is created with, sorted.
	Names(pod string) ([]string, error)
	// Status asks for the health of the pod's devices.
	Status(pod string)
	// Forget removes the pod.
	Forget(pod string)
}

// New makes a manager on the directory, and starts it.
type New func(t *testing.T) Manager

const cards = 4

// bench is a manager and a plugin.
type bench struct {
	t *testing.T
	*plugin
	create  New
	manager Manager
}

func newBench(t *testing.T, create New) *bench {
	t.Helper()
	entries, err := filepath.Glob(pluginDir + "/*")
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.RemoveAll(e))
	}
	b := &bench{t: t, plugin: newPlugin(t, cards), create: create, manager: create(t)}
	t.Cleanup(func() { require.NoError(t, b.manager.Stop()) })
	return b
}

// restart stops the manager and starts another on the same directory.
func (b *bench) restart() {
	b.t.Helper()
	require.NoError(b.t, b.manager.Stop())
	b.manager = b.create(b.t)
}

// waits until so many devices are there and may be allocated.
func (b *bench) waits(capacity, allocatable int64) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, a := b.manager.Capacity()
		if c == capacity && a == allocatable {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(b.t, "waited in vain", "for capacity %d and allocatable %d; they are %d and %d; the plugin's log:\n%s", capacity, allocatable, c, a, b.log())
		}
		time.Sleep(5 * time.Millisecond) // nothing tells of a change
	}
}

// stays checks that every card may be allocated, and that nothing changes for
// longer than the plugin takes to notice.
func (b *bench) stays() {
	b.t.Helper()
	b.waits(cards, cards)
	require.Never(b.t, func() bool {
		c, a := b.manager.Capacity()
		return c != cards || a != cards
	}, 4*time.Second, 20*time.Millisecond, "it changed; the plugin's log:\n%s", b.log())
}

// Run runs every scenario against a version's manager.
func Run(t *testing.T, create New) {
	t.Helper()
	for name, scenario := range map[string]func(*bench){
		"the kubelet restarts and replays its checkpoint":   checkpoint,
		"the plugin is killed and starts again":             killed,
		"the plugin stands still":                           paused,
		"an update of the plugin overlaps with the old one": overlap,
		"the plugin's socket is removed":                    socketRemoved,
		"every file of the directory is removed":            wiped,
		"the kubelet's socket is there and nobody accepts":  slow,
		"a card is sick, leaves, and comes back":            health,
		"lists and allocations in random order":             interleavings,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, create)
			b.start()
			b.waits(cards, cards)
			scenario(b)
		})
	}
}

func checkpoint(b *bench) {
	require.NoError(b.t, b.manager.Allocate("a", 2))
	devices := b.manager.Devices("a")
	names, err := b.manager.Names("a")
	require.NoError(b.t, err)
	require.Len(b.t, names, 2)
	for range 3 {
		b.restart()
		b.waits(cards, cards)
		require.Equal(b.t, devices, b.manager.Devices("a"))
		again, err := b.manager.Names("a")
		require.NoError(b.t, err)
		require.Equal(b.t, names, again)
	}
	require.NoError(b.t, b.manager.Allocate("b", 2))
	for _, d := range b.manager.Devices("b") {
		require.NotContains(b.t, devices, d)
	}
	require.Error(b.t, b.manager.Allocate("c", 1), "none is left")
}

func killed(b *bench) {
	for range 5 {
		b.end(syscall.SIGKILL)
		b.waits(cards, 0)
		b.start()
		b.waits(cards, cards)
	}
	b.stays()
}

func paused(b *bench) {
	b.signal(syscall.SIGSTOP)
	b.restart() // it is not there when the kubelet starts
	b.waits(0, 0)
	b.signal(syscall.SIGCONT)
	b.stays()
}

func overlap(b *bench) {
	for range 3 {
		b.start()
		b.stays()
		b.endFirst(syscall.SIGTERM)
		b.stays()
	}
}

// ours lists our sockets.
func ours(b *bench) []string {
	b.t.Helper()
	found, err := filepath.Glob(pluginDir + "/nri-gpu-*.sock")
	require.NoError(b.t, err)
	return found
}

func socketRemoved(b *bench) {
	before := ours(b)
	require.Len(b.t, before, 1)
	require.NoError(b.t, os.Remove(before[0]))
	require.Eventually(b.t, func() bool { now := ours(b); return len(now) == 1 && now[0] != before[0] }, 20*time.Second, 5*time.Millisecond)
	b.stays()
	require.NoError(b.t, b.manager.Allocate("a", 1))
}

func wiped(b *bench) {
	require.NoError(b.t, b.manager.Allocate("a", 1))
	require.NoError(b.t, b.manager.Stop())
	entries, err := filepath.Glob(pluginDir + "/*")
	require.NoError(b.t, err)
	for _, e := range entries { // the checkpoint, too
		require.NoError(b.t, os.RemoveAll(e))
	}
	b.manager = b.create(b.t)
	b.stays()
	require.NoError(b.t, b.manager.Allocate("b", cards))
}

func slow(b *bench) {
	require.NoError(b.t, b.manager.Stop())
	socket := filepath.Join(pluginDir, "kubelet.sock")
	require.NoError(b.t, os.RemoveAll(socket))
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(b.t, err)
	require.NoError(b.t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket})) // and no listen
	require.Never(b.t, func() bool { return len(b.running) == 0 }, 2*time.Second, 100*time.Millisecond)
	require.NoError(b.t, syscall.Close(fd))
	b.manager = b.create(b.t)
	b.stays()
}

func health(b *bench) {
	sick := b.inv
	sick.GPUs = slices.Clone(b.inv.GPUs)
	sick.GPUs[1].Health = device.Health{Reason: "XID 79"}
	for range 3 {
		b.write(sick)
		b.waits(cards, cards-1)
		b.write(b.inv)
		b.waits(cards, cards)
	}
	gone := b.inv
	gone.GPUs = slices.Delete(slices.Clone(b.inv.GPUs), 1, 2)
	b.write(gone)
	b.waits(cards, cards-1) // never dropped from the list
	require.Error(b.t, b.manager.Allocate("all", cards))
	b.write(b.inv)
	b.waits(cards, cards)
	require.NoError(b.t, b.manager.Allocate("all", cards))
}

// operations is how many calls are made while the list changes.
const operations = 10_000

// interleavings changes the list without a pause while pods come and go. Since
// 1.34 a device that leaves the list within an allocation is a nil pointer to
// the kubelet.
func interleavings(b *bench) {
	seed := uint64(time.Now().UnixNano())
	b.t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	stop, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		b.churn(rand.New(rand.NewPCG(seed, 2)), stop)
	}()
	var pods []string
	errs := map[bool]int{}
	for n := range operations {
		pods = b.operate(random, n, pods, errs)
	}
	close(stop)
	<-changed
	b.t.Logf("%d allocations succeeded and %d were refused", errs[true], errs[false])
	require.NotZero(b.t, errs[true], errors.New("nothing was ever allocated"))
	b.write(b.inv)
	b.waits(cards, cards)
}

// churn writes one list after the other until it is stopped.
func (b *bench) churn(random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		inv := b.inv
		inv.GPUs = nil
		for _, g := range b.inv.GPUs {
			switch random.IntN(4) {
			case 0:
				g.Health = device.Health{Reason: "sick"}
			case 1:
				continue // gone
			}
			inv.GPUs = append(inv.GPUs, g)
		}
		b.write(inv)
	}
}

// operate makes one call of the kubelet's, and returns the pods that are there
// then; errs counts allocations by whether they succeeded.
func (b *bench) operate(random *rand.Rand, n int, pods []string, errs map[bool]int) []string {
	what := random.IntN(5)
	if what > 2 && len(pods) == 0 {
		return pods
	}
	switch what {
	case 0, 1:
		pod := fmt.Sprintf("p%d", n)
		err := b.manager.Allocate(pod, 1+random.IntN(2))
		errs[err == nil]++
		if err == nil {
			pods = append(pods, pod)
		}
	case 2:
		b.manager.Capacity()
	case 3:
		b.manager.Status(pods[random.IntN(len(pods))])
	case 4:
		i := random.IntN(len(pods))
		b.manager.Forget(pods[i])
		pods = slices.Delete(pods, i, i+1)
	}
	return pods
}
