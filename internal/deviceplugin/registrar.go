package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// noDevice is what an idle plugin waits for; it is ready all the same.
	noDevice = "there is no device to serve"
	// noStreamYet is what a plugin waits for that has just made a socket.
	noStreamYet = "the kubelet has not asked for the device list yet"
)

// registrar keeps one generation registered. It looks at the world, each time
// something wakes it, and acts on what it sees: the order in which things
// happened does not matter, and a wake-up too many does no harm.
type registrar struct {
	plugin *Plugin
	log    logrus.FieldLogger

	current *generation // nil when there is none
	// kubelet is the socket that current was registered with.
	kubelet fileID
	// attempts counts the generations, and serial numbers their sockets.
	attempts, serial int64
	// notBefore is when the next one may be made.
	notBefore time.Time
	backoff   backoff
}

func newRegistrar(p *Plugin) *registrar {
	return &registrar{
		plugin: p, log: p.cfg.Log.WithField("resource", p.cfg.Resource),
		backoff: backoff{first: p.timing.backoffMin, last: p.timing.backoffMax},
	}
}

// run works until ctx ends, and leaves no socket behind.
func (r *registrar) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if r.current != nil {
				r.current.close(r.plugin.timing.stop)
			}
			return
		case <-r.plugin.wake:
		case <-timer.C:
		}
		again, waiting := r.step(ctx, time.Now())
		r.report(waiting)
		timer.Reset(again)
	}
}

// step does what is to be done now. It returns when to look again at the
// latest, and what is waited for; nothing when the kubelet follows the list.
func (r *registrar) step(ctx context.Context, now time.Time) (again time.Duration, waiting string) {
	poll := r.plugin.timing.poll
	missing := r.plugin.carrier.refresh()
	if len(r.plugin.list.load().devices) == 0 {
		return poll, noDevice
	}
	if missing != "" {
		return poll, missing
	}
	kubelet, err := identify(kubeletSocket(r.plugin.cfg))
	if err != nil {
		// A stream may well be open: sockets outlive their files.
		return poll, r.waitingFor(noKubelet(kubeletSocket(r.plugin.cfg), err))
	}
	if kubelet != r.kubelet {
		r.kubelet = kubelet
		r.backoff.reset()
		r.notBefore = now
		r.retire("the kubelet made a new socket")
		// Not before: the directory may have come with the kubelet.
		removeDeadSockets(ctx, r.plugin.cfg, r.log)
	}
	if r.current != nil {
		fault := r.current.fault(now, r.plugin.timing.streamGrace)
		if fault == nil {
			r.settle(now)
			return r.patience(), r.waitingFor(noStreamYet)
		}
		r.retire(fault.Error())
		r.notBefore = now.Add(r.backoff.next())
		return time.Until(r.notBefore), fault.Error()
	}
	if wait := r.notBefore.Sub(now); wait > 0 {
		return wait, r.plugin.registration().Waiting
	}
	if r.current, err = r.open(ctx); err != nil {
		r.notBefore = now.Add(r.backoff.next())
		return time.Until(r.notBefore), err.Error()
	}
	return r.patience(), noStreamYet
}

// patience is how soon to look again while a generation is alive.
func (r *registrar) patience() time.Duration {
	return min(r.plugin.timing.poll, r.plugin.timing.streamGrace)
}

// waitingFor returns the reason, or nothing when a stream is open all the same.
func (r *registrar) waitingFor(reason string) string {
	if r.current != nil {
		if open, _ := r.current.streams.count(); open > 0 {
			return ""
		}
	}
	return reason
}

// settle forgets earlier faults once a stream has been open for a while.
func (r *registrar) settle(now time.Time) {
	r.current.mu.Lock()
	registered := r.current.registered
	r.current.mu.Unlock()
	if open, _ := r.current.streams.count(); open > 0 && !registered.IsZero() && now.Sub(registered) > r.plugin.timing.steady {
		r.backoff.reset()
	}
}

func (r *registrar) retire(why string) {
	if r.current == nil {
		return
	}
	r.log.Infof("closing socket %q: %s", r.current.path, why)
	r.current.close(r.plugin.timing.stop)
	r.current = nil
}

func (r *registrar) report(waiting string) {
	now := Registration{Attempts: r.attempts, Waiting: waiting}
	if r.current != nil {
		now.Socket = r.current.path
		now.Streams, _ = r.current.streams.count()
	}
	r.plugin.report(now)
}

// nextPath names the next socket. The serial number starts at the time, since
// in a container every process has the same number, and a kubelet may not have
// noticed yet that the one before has ended.
func (r *registrar) nextPath() (string, error) {
	r.attempts++
	r.serial = max(r.serial+1, time.Now().UnixMilli())
	return socketPath(r.plugin.cfg, r.serial)
}

func kubeletSocket(cfg Config) string { return filepath.Join(cfg.KubeletDir, "kubelet.sock") }

func noKubelet(socket string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("the kubelet's socket %q does not exist; start the kubelet, or set --kubelet-dir", socket)
	}
	return fmt.Sprintf("the kubelet's socket cannot be looked at: %v", err)
}

// backoff is the wait after each fault in a row, doubled from first to last.
type backoff struct{ first, last, current time.Duration }

func (b *backoff) next() time.Duration {
	b.current = min(max(2*b.current, b.first), b.last)
	return b.current
}

func (b *backoff) reset() { b.current = 0 }
