package deviceplugin

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/dirwatch"
	"github.com/nri-gpu/nri-gpu/internal/recent"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// Config says what to serve, and where.
type Config struct {
	// Resource is the extended resource, "nvidia.com/gpu".
	Resource string
	// KubeletDir is the kubelet's device plugin directory, which holds its
	// kubelet.sock and will hold our sockets. Nothing else of ours is put
	// there: kubelets before 1.33 remove every file at start.
	KubeletDir string
	// NRI is set where nri-gpu injects, and nil where the runtime does.
	NRI *NRI
	// Metrics takes the plugin's metrics.
	Metrics prometheus.Registerer
	Log     logrus.FieldLogger
}

// NRI is what the plugin shares with nri-gpu on the node.
type NRI struct {
	// HealthSocket is where nri-gpu serves gRPC health.
	HealthSocket string
	// CarrierFile is where nri-gpu writes the carrier that its runtime takes.
	// Nothing is registered before it has one.
	CarrierFile string
	// Annotate signs the names that a container is allocated.
	Annotate Annotate
}

// Annotate returns the container annotation for qualified names.
type Annotate func(names []string) (key, value string, err error)

// timing holds every wait, so that a test need not live through them.
type timing struct {
	// poll is how often the sockets are looked at when nothing wakes us.
	poll time.Duration
	// register bounds one Register call. The kubelet dials back for up to 10 s
	// within it.
	register time.Duration
	// streamGrace is how long after Register the kubelet may take to open a
	// stream.
	streamGrace time.Duration
	// steady is how long a stream must have been open for the next fault to
	// be taken for a new one.
	steady time.Duration
	// backoffMin and backoffMax bound the wait between two attempts. A stream that
	// is lost again and again is back within two seconds each time.
	backoffMin, backoffMax time.Duration
	// stop bounds the end of a socket's calls.
	stop time.Duration
}

func defaultTiming() timing {
	return timing{
		poll: time.Second, register: 15 * time.Second, streamGrace: 3 * time.Second, steady: 10 * time.Second,
		backoffMin: 200 * time.Millisecond, backoffMax: 1500 * time.Millisecond, stop: time.Second,
	}
}

// Plugin serves one resource. Make it with New, then Run it; SetDevices,
// NotReady and State may be called at any time, from anywhere.
type Plugin struct {
	cfg        Config
	timing     timing
	newWatcher func() (*fsnotify.Watcher, error)

	list    *list
	carrier *carrier
	metrics *metrics
	wake    dirwatch.Waker
	recent  recent.List[Allocation]

	mu     sync.Mutex
	status Registration
}

// New returns a plugin that has no devices yet. It fails when the directory's
// path leaves no room for a socket's name, or the metrics are registered
// already.
func New(cfg Config) (*Plugin, error) {
	if _, err := socketPath(cfg, 0); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Metrics, cfg.Resource)
	if err != nil {
		return nil, fmt.Errorf("register metrics of %q: %w", cfg.Resource, err)
	}
	return &Plugin{
		cfg: cfg, timing: defaultTiming(),
		list: newList(), carrier: newCarrier(cfg), metrics: m, wake: dirwatch.NewWaker(),
	}, nil
}

// SetDevices advertises what a node offers under the resource; the inventory
// says how the cards are connected. The CDI specs for it must be on disk before,
// since a pod may be admitted at once. Devices that were advertised before and
// are not offered now stay listed, unhealthy.
func (p *Plugin) SetDevices(r resources.Resource, inv device.Inventory) {
	for _, c := range p.list.set(r, inv) {
		log := p.cfg.Log.WithFields(logrus.Fields{"resource": p.cfg.Resource, "device": c.id})
		switch {
		case !c.health.Healthy:
			log.Warnf("device is unhealthy: %s", c.health.Reason)
		case c.isNew:
			log.Info("device is listed")
		default:
			log.Info("device is healthy again")
		}
	}
	p.metrics.count(p.list.load().count())
	p.wake.Wake()
}

// Run registers with the kubelet and stays registered until ctx ends; then it
// closes its socket and returns. Whatever goes wrong on the way is tried again
// and shows in NotReady.
func (p *Plugin) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	watch := &dirwatch.Watch{Dirs: p.watchedDirs(), Poll: p.timing.poll, New: p.newWatcher, Wake: p.wake.Wake, Log: p.cfg.Log}
	running.Go(func() { watch.Run(ctx) })
	newRegistrar(p).run(ctx)
}

func (p *Plugin) watchedDirs() []string {
	dirs := []string{p.cfg.KubeletDir}
	if p.cfg.NRI != nil {
		dirs = append(dirs, filepath.Dir(p.cfg.NRI.CarrierFile))
	}
	return dirs
}
