package mps

import (
	"reflect"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

func (b *bench) note(resource string) {
	s, _ := b.m.Status(resource)
	b.mu.Lock()
	b.history = append(b.history, s)
	b.mu.Unlock()
	b.changed.Wake()
}

// after returns the status that followed one of a resource.
func (b *bench) after(s Status) Status {
	b.t.Helper()
	var next Status
	b.wait(s.Resource, "another status", func(Status) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		i := slices.IndexFunc(b.history, func(h Status) bool { return reflect.DeepEqual(h, s) })
		if i < 0 || i+1 >= len(b.history) {
			return false
		}
		next = b.history[i+1]
		return true
	})
	return next
}

// wait returns the first status of a resource that fits.
func (b *bench) wait(resource, what string, fits func(Status) bool) Status {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		s, _ := b.m.Status(resource)
		if fits(s) {
			return s
		}
		select {
		case <-b.changed:
		case <-deadline:
			require.Fail(b.t, "wait for "+what, "%+v", s)
		}
	}
}

func (b *bench) ready(resource string) Status {
	b.t.Helper()
	return b.wait(resource, "ready", func(s Status) bool { return s.Ready })
}
