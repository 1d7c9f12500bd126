package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// figures are counted by all parts.
type figures struct {
	mu         sync.Mutex
	containers int
	faults     int
	violations []string
	// slowest is the longest time from the end of a fault until the node served
	// again, and of whom.
	slowest   time.Duration
	slowestOf string
	// orphans are shims without a container that a containerd left which was
	// killed while it made a pod: it had not noted them yet, and nobody but it
	// knows how to end them.
	orphans int
	// finals are pods that the kubelet refused for good, by cause.
	finals map[string]int
}

func (f *figures) violate(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	f.violations = append(f.violations, text)
	fmt.Println("chaos: VIOLATION:", text)
}

func (f *figures) counts() (containers, faults int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.containers, f.faults
}

func (f *figures) fault(name string, recovery time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults++
	if recovery > f.slowest {
		f.slowest, f.slowestOf = recovery, name
	}
}

func (f *figures) final(cause string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finals[cause]++
}

// String is the last line.
func (f *figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var finals []string
	for _, cause := range slices.Sorted(maps.Keys(f.finals)) {
		finals = append(finals, fmt.Sprintf("%s:%d", cmp.Or(cause, "Error"), f.finals[cause]))
	}
	return fmt.Sprintf("chaos: containers=%d faults=%d violations=%d slowest_recovery=%s(%s) kubelet_finals=%s containerd_orphans=%d",
		f.containers, f.faults, len(f.violations), f.slowest.Round(10*time.Millisecond), f.slowestOf, strings.Join(finals, ","), f.orphans)
}
