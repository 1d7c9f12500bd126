package deviceplugin

import (
	"time"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// Registration is how far the plugin is with the kubelet.
type Registration struct {
	// Socket is the path of the current socket; empty when there is none.
	Socket string `json:"socket,omitempty"`
	// Streams is the number of streams on which the kubelet was sent the list.
	Streams int `json:"streams"`
	// Attempts counts the sockets that were made since the process started.
	Attempts int64 `json:"attempts"`
	// Waiting says what is missing; empty when a stream is open.
	Waiting string `json:"waiting,omitempty"`
	// Since is when Waiting last changed.
	Since time.Time `json:"since"`
}

// ListedDevice is one device as it is advertised.
type ListedDevice struct {
	ID     string        `json:"id"`
	Health device.Health `json:"health"`
	// NUMANode is -1 when unknown.
	NUMANode int64 `json:"numaNode"`
}

// Allocation is one answer to Allocate. The kubelet does not say for whom.
type Allocation struct {
	Time time.Time `json:"time"`
	IDs  []string  `json:"ids"`
}

// State is all that the plugin knows, for people who debug it.
type State struct {
	Resource     string         `json:"resource"`
	Carrier      string         `json:"carrier,omitempty"`
	Registration Registration   `json:"registration"`
	Devices      []ListedDevice `json:"devices"`
	// Recent are the last allocations.
	Recent []Allocation `json:"recent"`
}

// State returns the state of now.
func (p *Plugin) State() State {
	snap := p.list.load()
	out := State{Resource: p.cfg.Resource, Carrier: p.carrier.String(), Registration: p.registration(), Devices: []ListedDevice{}, Recent: p.recent.All()}
	for _, d := range snap.devices {
		out.Devices = append(out.Devices, ListedDevice{ID: d.GetID(), Health: snap.health[d.GetID()], NUMANode: numaNode(d)})
	}
	return out
}

// NotReady returns why the kubelet cannot use the plugin; nothing when it can,
// and nothing when there is no device to serve. Unhealthy devices are no reason:
// the others serve.
func (p *Plugin) NotReady() []string {
	if len(p.list.load().devices) == 0 {
		return nil
	}
	if waiting := p.registration().Waiting; waiting != "" {
		return []string{waiting}
	}
	return nil
}

func (p *Plugin) registration() Registration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// report stores the status, keeps the time of its last change, and logs what
// is new about it.
func (p *Plugin) report(now Registration) {
	p.mu.Lock()
	before := p.status
	now.Since = before.Since
	if before.Waiting != now.Waiting || before.Since.IsZero() {
		now.Since = time.Now()
	}
	p.status = now
	p.mu.Unlock()

	p.metrics.streams.Set(float64(now.Streams))
	p.metrics.registered.Set(float64(min(now.Streams, 1)))
	log := p.cfg.Log.WithField("resource", p.cfg.Resource)
	switch now.Waiting {
	case before.Waiting:
	case "":
		log.Info("registered; the kubelet follows the device list")
	case noDevice, noStreamYet:
		log.Info(now.Waiting)
	default:
		log.Warnf("not registered: %s", now.Waiting)
	}
}
