package mps

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/dirwatch"
)

// Manager runs the daemons. Its methods may be called from anywhere.
type Manager struct {
	cfg  Config
	wake dirwatch.Waker

	mu sync.Mutex
	// programs and wanted are what Set was given last; told is false before.
	programs Programs
	wanted   []Resource
	told     bool
	// workers are the present ones by resource.
	workers map[string]*worker

	// The rest is Run's alone.
	swept bool
	// leaving were told to stop.
	leaving []*worker
}

// equal tells whether daemons of the one are as good as those of the other.
func (p *Programs) equal(q *Programs) bool {
	return p.Control == q.Control && p.Server == q.Server && p.SMI == q.SMI && p.Version == q.Version && slices.Equal(p.Env, q.Env)
}

// New returns a Manager that does nothing before Set and Run.
func New(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Changed == nil {
		cfg.Changed = func(string) {}
	}
	cfg.mounting = new(sync.Mutex)
	return &Manager{cfg: cfg, wake: dirwatch.NewWaker(), workers: map[string]*worker{}}
}

// Set says what is to be served from now on. Daemons whose resource and programs
// are the same go on; it does not wait for the others.
func (m *Manager) Set(programs Programs, wanted []Resource) {
	m.mu.Lock()
	m.programs, m.wanted, m.told = programs, slices.Clone(wanted), true
	m.mu.Unlock()
	m.wake.Wake()
}

// Run serves until ctx ends and every daemon has been stopped.
func (m *Manager) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			m.stopAll()
			return
		case <-m.wake:
			m.reconcile(ctx)
		}
	}
}

func (m *Manager) stopAll() {
	m.mu.Lock()
	for _, w := range m.workers {
		m.leaving = append(m.leaving, w)
	}
	m.mu.Unlock()
	for _, w := range m.leaving {
		w.cancel()
	}
	for _, w := range m.leaving {
		<-w.done
	}
	m.leaving = nil
	if err := m.cfg.unmountShm(); err != nil {
		m.cfg.Log.WithError(err).Warn("the shared memory of MPS stays mounted")
	}
}

// reconcile makes the workers what Set wants.
func (m *Manager) reconcile(ctx context.Context) {
	m.mu.Lock()
	programs, wanted, told := m.programs, m.wanted, m.told
	m.mu.Unlock()
	if !told {
		return
	}
	if !m.swept {
		m.swept = true
		m.cfg.sweep(context.WithoutCancel(ctx), &programs)
	}
	faults := faults(wanted)
	m.leaving = slices.DeleteFunc(m.leaving, (*worker).ended)
	next := map[string]*worker{}
	for i := range wanted {
		r := wanted[i]
		if old := m.workers[r.Name]; old != nil && old.serves(&programs, &r, faults[r.Name]) {
			next[r.Name] = old
		}
	}
	for name, w := range m.workers {
		if next[name] == nil {
			w.cancel()
			m.leaving = append(m.leaving, w)
		}
	}
	var fresh []*worker
	for i := range wanted {
		if r := wanted[i]; next[r.Name] == nil {
			w := newWorker(&m.cfg, programs, r, faults[r.Name])
			next[r.Name], fresh = w, append(fresh, w)
		}
	}
	// Whoever hears of a change finds the worker that it is of.
	m.mu.Lock()
	m.workers = next
	m.mu.Unlock()
	for _, w := range fresh {
		w.start(ctx, m.before(&w.res))
	}
}

// before are the workers that must have ended before a resource is served: they
// have its directory or one of its cards.
func (m *Manager) before(r *Resource) []*worker {
	var out []*worker
	for _, w := range m.leaving {
		if w.res.Name == r.Name || slices.ContainsFunc(w.res.Devices, func(d Device) bool { return slices.Contains(uuids(r.Devices), d.UUID) }) {
			out = append(out, w)
		}
	}
	return out
}

// Status returns what is known of a resource; false when it is not served.
func (m *Manager) Status(resource string) (Status, bool) {
	m.mu.Lock()
	w := m.workers[resource]
	m.mu.Unlock()
	if w == nil {
		return Status{Resource: resource}, false
	}
	return w.load(), true
}

// Statuses lists every resource, sorted by name.
func (m *Manager) Statuses() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Status
	for _, w := range m.workers {
		out = append(out, w.load())
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// serves tells whether a worker need not be replaced.
func (w *worker) serves(p *Programs, r *Resource, fault error) bool {
	same := (w.fault == nil) == (fault == nil) && (fault == nil || fault.Error() == w.fault.Error())
	return same && w.programs.equal(p) && slices.Equal(w.res.Devices, r.Devices)
}

func newWorker(cfg *Config, p Programs, r Resource, fault error) *worker {
	return &worker{
		cfg: cfg, programs: p, res: r, fault: fault, done: make(chan struct{}),
		log:    cfg.Log.WithFields(logrus.Fields{"resource": r.Name}),
		status: Status{Resource: r.Name, Reason: "its MPS daemon is not started yet", Since: cfg.Now()},
	}
}
