// Package dirwatch wakes a loop when something in one of some directories
// changes, and now and then in any case: inotify is a hint that may be missing.
// A symbolic link that is switched, as Kubernetes does with a ConfigMap's files,
// is a change of its directory.
package dirwatch

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// Waker wakes one loop. Any number of calls before the loop comes round are one.
type Waker chan struct{}

// NewWaker returns a Waker that has not been woken.
func NewWaker() Waker { return make(Waker, 1) }

// Wake wakes the loop that receives from w; it never waits.
func (w Waker) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Watch says what to watch. The loop looks for itself what has changed: a node
// may be out of inotify instances, a directory may not be there yet, and a file
// system may not tell, so it is woken at each Poll too.
type Watch struct {
	Dirs []string
	Poll time.Duration
	Wake func()
	Log  logrus.FieldLogger
	// New makes an inotify instance; nil: fsnotify.NewWatcher.
	New func() (*fsnotify.Watcher, error)

	watcher *fsnotify.Watcher // nil while there is none to be had
	told    bool
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	defer w.close()
	tick := time.NewTicker(w.Poll)
	defer tick.Stop()
	w.renew()
	for {
		events, errs := w.channels()
		select {
		case <-ctx.Done():
			return
		case <-events:
		case err := <-errs:
			// An overflow loses events and nothing else; the next look is now.
			w.Log.WithError(err).Debug("watch directories")
		case <-tick.C:
			w.renew()
		}
		w.Wake()
	}
}

// renew makes a watcher if there is none, and watches every directory: one that
// is watched already stays so, and one that was made anew is a new one.
func (w *Watch) renew() {
	if w.watcher == nil {
		watcher, err := w.make()
		if err != nil {
			if !w.told {
				w.Log.WithError(err).Warnf("no inotify instance is to be had; looking every %s instead (raise fs.inotify.max_user_instances)", w.Poll)
				w.told = true
			}
			return
		}
		w.watcher = watcher
	}
	for _, dir := range w.Dirs {
		if err := w.watcher.Add(dir); err != nil {
			w.Log.WithError(err).Debugf("cannot watch %q yet", dir)
		}
	}
}

func (w *Watch) make() (*fsnotify.Watcher, error) {
	if w.New != nil {
		return w.New()
	}
	return fsnotify.NewWatcher()
}

func (w *Watch) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.watcher == nil {
		return nil, nil
	}
	return w.watcher.Events, w.watcher.Errors
}

func (w *Watch) close() {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Close(); err != nil {
		w.Log.WithError(err).Debug("close directory watch")
	}
}
