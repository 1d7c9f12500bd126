package deviceplugin

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// waker wakes one loop. Any number of calls before the loop comes round are
// one.
type waker chan struct{}

func newWaker() waker { return make(waker, 1) }

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// dirWatch wakes a loop when something in one of some directories changes. It
// also wakes it at each poll: a node may be out of inotify instances, a
// directory may not be there yet, and a file system may not tell. The loop
// looks for itself what has changed.
type dirWatch struct {
	dirs []string
	poll time.Duration
	// newWatcher is fsnotify.NewWatcher.
	newWatcher func() (*fsnotify.Watcher, error)
	wake       func()
	log        logrus.FieldLogger

	watcher *fsnotify.Watcher // nil while there is none to be had
	told    bool
}

// run watches until ctx ends.
func (w *dirWatch) run(ctx context.Context) {
	defer w.close()
	tick := time.NewTicker(w.poll)
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
			w.log.WithError(err).Debug("watch directories")
		case <-tick.C:
			w.renew()
		}
		w.wake()
	}
}

// renew makes a watcher if there is none, and watches every directory: one that
// is watched already stays so, and one that was made anew is a new one.
func (w *dirWatch) renew() {
	if w.watcher == nil {
		watcher, err := w.newWatcher()
		if err != nil {
			if !w.told {
				w.log.WithError(err).Warnf("no inotify instance is to be had; looking every %s instead (raise fs.inotify.max_user_instances)", w.poll)
				w.told = true
			}
			return
		}
		w.watcher = watcher
	}
	for _, dir := range w.dirs {
		if err := w.watcher.Add(dir); err != nil {
			w.log.WithError(err).Debugf("cannot watch %q yet", dir)
		}
	}
}

func (w *dirWatch) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.watcher == nil {
		return nil, nil
	}
	return w.watcher.Events, w.watcher.Errors
}

func (w *dirWatch) close() {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Close(); err != nil {
		w.log.WithError(err).Debug("close directory watch")
	}
}
