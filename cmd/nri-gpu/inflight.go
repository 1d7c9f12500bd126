package main

import (
	"sync"
	"time"
)

// inflight knows how old the oldest request is, which tells a wedged daemon
// from one on an idle node.
type inflight struct {
	mu     sync.Mutex
	next   int
	starts map[int]time.Time
}

// begin notes a request and returns the function that ends it.
func (f *inflight) begin() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.starts == nil {
		f.starts = map[int]time.Time{}
	}
	id := f.next
	f.next++
	f.starts[id] = time.Now()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.starts, id)
	}
}

// oldest returns how long the oldest request has been going on.
func (f *inflight) oldest(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var most time.Duration
	for _, s := range f.starts {
		most = max(most, now.Sub(s))
	}
	return most
}
