package features

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/wait"
)

// place is a Sink with what we know of it.
type place struct {
	Sink
	first, backoff wait.Backoff
	metrics        *Metrics
	log            logrus.FieldLogger

	// mu guards what follows; it is not held while the place is written, which
	// may take long.
	mu sync.Mutex
	// last is what the place holds, nil when not known.
	last map[string]string
	// due is when the place is to be written even if nothing changed; after a
	// failure, when it may be written again.
	due  time.Time
	err  error
	when time.Time
}

// PlaceState is what is known of one place.
type PlaceState struct {
	Name string `json:"name"`
	// Published is the last time that the place was known to hold the labels.
	Published time.Time `json:"published,omitzero"`
	Labels    int       `json:"labels"`
	// Error is why it does not hold the newest; empty when it does.
	Error string `json:"error,omitempty"`
}

func (s *place) state() PlaceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := PlaceState{Name: s.Name, Published: s.when, Labels: len(s.last)}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	return out
}

// rest tells whether nothing is to be done now, and what is wrong then.
func (s *place) rest(wanted map[string]string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.due) && (s.err != nil || maps.Equal(s.last, wanted)), s.err
}

// next is when the place wants to be looked at.
func (s *place) next() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due
}

// publish writes when the labels changed or the time has come, and returns what
// is wrong with the place. It is not called twice at a time.
func (s *place) publish(ctx context.Context, wanted map[string]string) error {
	if rest, err := s.rest(wanted); rest {
		return err
	}
	changed, err := s.Write(ctx, wanted)
	if err != nil && ctx.Err() != nil {
		return err // we end; it is no fault of the place
	}
	s.metrics.wrote(s.Name, changed, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed(err)
		return err
	}
	if changed || s.err != nil {
		s.log.WithField("count", len(wanted)).Info("published the node's labels")
	}
	s.last, s.err, s.when = wanted, nil, time.Now()
	s.backoff = s.first
	s.due = s.when.Add(s.Verify)
	return nil
}

// failed notes a failure, and logs it unless it is the one before; the caller
// holds the lock.
func (s *place) failed(err error) {
	pause := s.backoff.Step()
	s.due = time.Now().Add(pause)
	if s.err == nil || s.err.Error() != err.Error() {
		s.log.WithField("retry", pause.Round(time.Millisecond)).Warn(err)
	}
	s.err = err
}
