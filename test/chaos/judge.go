package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// judge notes what the kubelet allocated, which it forgets with the pod, and
// holds every container's own report to it.
type judge struct {
	stack *stack.Stack
	dir   string
	f     *figures
	// minors has the number of each card's node.
	minors map[string]uint32

	mu sync.Mutex
	// allocated has the cards of a pod's container.
	allocated map[string][]string
	judged    map[string]bool
	end       context.CancelFunc
	running   sync.WaitGroup
}

// lookAgain is how often the kubelet's record and the reports are read.
const lookAgain = 100 * time.Millisecond

func startJudge(ctx context.Context, s *stack.Stack, dir string, f *figures) *judge {
	ctx, cancel := context.WithCancel(ctx)
	j := &judge{stack: s, dir: dir, f: f, minors: map[string]uint32{}, allocated: map[string][]string{}, judged: map[string]bool{}, end: cancel}
	for i := range 8 {
		d := s.Profile.Device(i)
		uuid, _ := d["uuid"].(string)
		minor, _ := d["minor"].(float64)
		j.minors[uuid] = uint32(minor)
	}
	j.running.Go(func() {
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				j.note()
				j.count()
			}
		}
	})
	return j
}

func (j *judge) stop() {
	j.end()
	j.running.Wait()
}

// note reads the kubelet's record of allocations.
func (j *judge) note() {
	all, err := harness.Allocations(j.stack.Node.Resource)
	if err != nil {
		return // it is being written, or the kubelet was killed while it wrote
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, ids := range all {
		j.allocated[key] = ids
	}
}

func (j *judge) reports() []string {
	found, err := filepath.Glob(filepath.Join(j.dir, "*.json"))
	if err != nil {
		return nil
	}
	return found
}

// count keeps the figure of containers that ran.
func (j *judge) count() {
	n := len(j.reports())
	j.f.mu.Lock()
	j.f.containers = n
	j.f.mu.Unlock()
}

// check holds every container that ever ran to its allocation.
func (j *judge) check() {
	j.count()
	for _, file := range j.reports() {
		var h report.Held
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, &h)
		}
		if err != nil {
			j.f.violate("report %s: %v", file, err)
			continue
		}
		if why := j.judge(h); why != "" {
			j.f.violate("container %s of pod %s: %s", h.Container, h.Pod, why)
		}
	}
}

// judge says what is wrong with a container.
func (j *judge) judge(h report.Held) string {
	j.mu.Lock()
	ids, known := j.allocated[h.Pod+"/"+h.Container]
	j.mu.Unlock()
	if !known {
		return "it ran, and the kubelet allocated it nothing that was seen"
	}
	if len(h.Taken) > 0 {
		return fmt.Sprintf("it held %v while another container held it", h.Taken)
	}
	var want, got []uint32
	for _, id := range ids {
		want = append(want, j.minors[id])
	}
	slices.Sort(want)
	card := regexp.MustCompile(`^/dev/nvidia[0-9]+$`)
	for _, n := range h.Nodes {
		if card.MatchString(n.Path) {
			got = append(got, n.Minor)
		}
		if !n.Allowed() {
			return fmt.Sprintf("it could not open its own %s: %s", n.Path, n.Open)
		}
	}
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return fmt.Sprintf("it was allocated the cards %v and held %v", want, got)
	}
	for _, n := range h.Made {
		if n.Allowed() != slices.Contains(want, n.Minor) {
			return fmt.Sprintf("card %d made by mknod: %s, of %v allocated", n.Minor, n.Open, want)
		}
	}
	return ""
}

// leftovers looks for what a node must not be left with when no pod is there.
func leftovers(ctx context.Context, s *stack.Stack, f *figures) {
	err := stack.Until(ctx, time.Minute, func(context.Context) error {
		if left := remains(s); len(left) > 0 {
			return fmt.Errorf("%s", strings.Join(left, "; "))
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		f.violate("left behind: %v", err)
	}
	f.mu.Lock()
	f.orphans = len(harness.Shims())
	f.mu.Unlock()
	inv, err := published(s)
	if err != nil || len(inv.GPUs) != 8 {
		f.violate("the inventory is not what it was: %d cards, %v", len(inv.GPUs), err)
	}
}

// remains lists records, half-written files, mounts, shims and descriptors.
func remains(s *stack.Stack) []string {
	var left []string
	for _, pattern := range []string{"containers/*", ".*.tmp", "cdi/.*.tmp"} {
		found, err := filepath.Glob(filepath.Join(string(s.Node.State), pattern))
		if err == nil {
			left = append(left, found...)
		}
	}
	left = append(left, harness.MountsBelow("/var/lib/kubelet/pods")...)
	for pid, below := range harness.Shims() {
		if len(below) > 0 {
			left = append(left, fmt.Sprintf("shim %s with %v", pid, below))
		}
	}
	for _, p := range []*harness.Process{s.Node.NRI, s.Node.Plugin} {
		if n := p.Descriptors(); n > maxDescriptors {
			left = append(left, fmt.Sprintf("%s has %d descriptors open", p.Name, n))
		}
	}
	return left
}

// maxDescriptors is some three times what a daemon has open when it idles.
const maxDescriptors = 100

func published(s *stack.Stack) (device.Inventory, error) {
	var inv device.Inventory
	data, err := os.ReadFile(s.Node.State.Inventory())
	if err == nil {
		err = json.Unmarshal(data, &inv)
	}
	return inv, err
}
