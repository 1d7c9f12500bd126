package features

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// Sink is one place that labels are published in.
type Sink struct {
	Name string
	// Write makes the place hold exactly these labels of ours. It looks at what
	// is there and writes only a difference; changed says that it did.
	Write func(ctx context.Context, labels map[string]string) (changed bool, err error)
	// Verify is the time after which Write is called again for labels that did
	// not change.
	Verify time.Duration
}

// Options configure a Publisher.
type Options struct {
	Sinks []Sink
	// Sharing says how devices are shared now; nil: not at all.
	Sharing func() Sharing
	// Machine names the machine; nil or empty: unknown. See MachineName.
	Machine func() string
	// Timestamp, when not zero, becomes the label gfd.timestamp.
	Timestamp time.Time
	// Backoff is the wait after a failure; zero: 1 s, doubled up to 2 min.
	Backoff wait.Backoff
	// Metrics may be nil.
	Metrics *Metrics
	Log     logrus.FieldLogger
}

// Publisher keeps the labels of a node in its sinks.
type Publisher struct {
	opts Options
	wake chan struct{}

	mu     sync.Mutex
	latest *device.Inventory

	// publishing is held for one Publish.
	publishing sync.Mutex
	places     []*place
}

// New returns a Publisher.
func New(opts Options) *Publisher {
	if opts.Backoff.Duration == 0 {
		opts.Backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 2 * time.Minute}
	}
	p := &Publisher{opts: opts, wake: make(chan struct{}, 1)}
	for _, s := range opts.Sinks {
		p.places = append(p.places, &place{Sink: s, first: opts.Backoff, backoff: opts.Backoff, metrics: opts.Metrics, log: opts.Log.WithField("labels", s.Name)})
		opts.Metrics.declare(s.Name)
	}
	return p
}

// Update hands over what was found on the node, and returns at once; Run
// publishes it.
func (p *Publisher) Update(inv device.Inventory) {
	p.mu.Lock()
	p.latest = &inv
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // Run is about to look anyhow
	}
}

// Run publishes what Update hands over, and tries again what failed, until ctx
// ends. What was published stays.
func (p *Publisher) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		p.mu.Lock()
		inv := p.latest
		p.mu.Unlock()
		if inv == nil {
			continue
		}
		_ = p.Publish(ctx, *inv) // each place has logged it, and says when it is due
		timer.Reset(max(time.Until(p.due()), 0))
	}
}

// Publish brings the labels of an inventory to every place where they changed,
// or are to be looked at again. The places are independent of each other; one
// that failed is left alone until its back-off is over. The error joins what is
// wrong with each place now.
//
// While the driver cannot be reached nothing is known of the cards, and the
// labels stay as they are.
func (p *Publisher) Publish(ctx context.Context, inv device.Inventory) error {
	if inv.Driver.State != device.DriverReady && inv.Driver.State != device.DriverNoDevices {
		return nil
	}
	wanted := p.labels(&inv)
	p.publishing.Lock()
	defer p.publishing.Unlock()
	errs := make([]error, len(p.places))
	var all sync.WaitGroup
	for i, s := range p.places {
		all.Go(func() { errs[i] = s.publish(ctx, wanted) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// State is what /debug/state shows of each place.
func (p *Publisher) State() []PlaceState {
	out := make([]PlaceState, len(p.places))
	for i, s := range p.places {
		out[i] = s.state()
	}
	return out
}

func (p *Publisher) labels(inv *device.Inventory) map[string]string {
	var sharing Sharing
	if p.opts.Sharing != nil {
		sharing = p.opts.Sharing()
	}
	machine := ""
	if p.opts.Machine != nil {
		machine = p.opts.Machine()
	}
	out := labels(Labels(inv, &sharing, machine))
	if !p.opts.Timestamp.IsZero() && len(inv.GPUs) > 0 {
		out.set("gfd.timestamp", timestamp(p.opts.Timestamp))
	}
	return maps.Clone(out)
}

// due is when the first place wants to be looked at.
func (p *Publisher) due() time.Time {
	first := time.Now().Add(time.Hour)
	for _, s := range p.places {
		if due := s.next(); due.Before(first) {
			first = due
		}
	}
	return first
}
