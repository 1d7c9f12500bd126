// Package recent keeps the last few of something, for people who look at a
// daemon that runs.
package recent

import "sync"

// size is how many are kept.
const size = 32

// List keeps the last ones. The zero value is ready, and safe for use from
// anywhere.
type List[T any] struct {
	mu   sync.Mutex
	last []T
}

// Add adds one, and drops the oldest when there are too many.
func (l *List[T]) Add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == size {
		l.last = append(l.last[:0], l.last[1:]...)
	}
	l.last = append(l.last, v)
}

// All returns them, the oldest first; never nil.
func (l *List[T]) All() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T{}, l.last...)
}
