package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a burst of changes may go on before it is read.
	settle = 20 * time.Millisecond
	// lookAgain is how often the state directory is read without a sign: the
	// directory itself may have been replaced, or inotify exhausted.
	lookAgain = 2 * time.Second
)

// watch reads the state directory now, at every change, and now and then.
func (d *daemon) watch(ctx context.Context) error {
	for _, dir := range []string{d.cfg.StateDir, d.cfg.State().SpecDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make state directory: %w", err)
		}
	}
	events, closeWatcher := d.watcher()
	defer closeWatcher()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		d.node.reload()
		d.reconcile()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-events:
			d.settled(ctx, events)
		}
	}
}

// settled waits until a burst of changes is over.
func (d *daemon) settled(ctx context.Context, events <-chan fsnotify.Event) {
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			return
		case <-events:
		}
	}
}

// watcher returns a channel of changes, or one that never has any when inotify
// is exhausted: the ticker then does its work.
func (d *daemon) watcher() (<-chan fsnotify.Event, func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.WithError(err).Warn("changes of the state directory are noticed by looking, every two seconds")
		return make(chan fsnotify.Event), func() {}
	}
	for _, dir := range []string{d.cfg.StateDir, d.cfg.State().SpecDir(), d.cfg.DataDir} {
		if err := w.Add(dir); err != nil {
			d.log.WithError(err).WithField("directory", dir).Debug("not watched")
		}
	}
	go func() {
		for range w.Errors {
			continue // an overflow; the ticker makes up for it
		}
	}()
	return w.Events, func() { _ = w.Close() }
}
