package features

import (
	"context"
	"maps"
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
	out := PlaceState{Name: s.Name, Published: s.when, Labels: len(s.last)}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	return out
}

// publish writes when the labels changed or the time has come, and returns what
// is wrong with the place.
func (s *place) publish(ctx context.Context, wanted map[string]string) error {
	waiting := time.Now().Before(s.due)
	if waiting && (s.err != nil || maps.Equal(s.last, wanted)) {
		return s.err
	}
	changed, err := s.Write(ctx, wanted)
	if err != nil && ctx.Err() != nil {
		return err // we end; it is no fault of the place
	}
	s.metrics.wrote(s.Name, changed, err)
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

// failed notes a failure, and logs it unless it is the one before.
func (s *place) failed(err error) {
	pause := s.backoff.Step()
	s.due = time.Now().Add(pause)
	if s.err == nil || s.err.Error() != err.Error() {
		s.log.WithField("retry", pause.Round(time.Millisecond)).Warn(err)
	}
	s.err = err
}
