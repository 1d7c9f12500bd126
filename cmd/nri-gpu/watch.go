package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/dirwatch"
)

const (
	// settle is how long a burst of changes may go on before it is read.
	settle = 20 * time.Millisecond
	// lookAgain is how often the state directory is read without a sign.
	lookAgain = 2 * time.Second
)

// watch reads the state directory now, at every change, and now and then.
func (d *daemon) watch(ctx context.Context) error {
	dirs := []string{d.cfg.StateDir, d.cfg.State().SpecDir(), d.cfg.DataDir}
	for _, dir := range dirs[:2] {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make state directory: %w", err)
		}
	}
	wake := dirwatch.NewWaker()
	watch := &dirwatch.Watch{Dirs: dirs, Poll: lookAgain, Wake: wake.Wake, Log: d.log}
	var watching sync.WaitGroup
	watching.Go(func() { watch.Run(ctx) })
	defer watching.Wait()
	repair := time.NewTicker(lookAgain)
	defer repair.Stop()
	for {
		d.node.reload()
		d.reconcile()
		select {
		case <-ctx.Done():
			return nil
		case <-repair.C:
			d.records.Repair()
		case <-wake:
			settled(ctx, wake)
		}
	}
}

// settled waits until a burst of changes is over, or has gone on for long.
func settled(ctx context.Context, wake dirwatch.Waker) {
	enough := time.After(10 * settle)
	for {
		select {
		case <-ctx.Done():
			return
		case <-enough:
			return
		case <-time.After(settle):
			return
		case <-wake:
		}
	}
}
