package deviceplugin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// guardKeeper removes the guard spec when nri-gpu is not connected to the
// runtime, so that a container fails at creation, by name, and not at its
// start. It never writes one: nri-gpu alone knows when its guard is safe.
type guardKeeper struct {
	gate gate
	// spec is the path of the guard spec.
	spec string
	// retry is how long to wait before a health stream is opened again.
	retry time.Duration
	// settle is how old a guard must be to be taken for a remnant of an nri-gpu
	// that ended before this process looked. A younger one may be that of an
	// nri-gpu which is just about to say that it serves.
	settle time.Duration
	log    logrus.FieldLogger
}

// KeepGuard removes the guard spec whenever nri-gpu, whose health is served on a
// socket, is not connected to the runtime; it works until ctx ends.
func KeepGuard(ctx context.Context, healthSocket, guardSpec string, log logrus.FieldLogger) {
	keeper := &guardKeeper{gate: gate{healthSocket}, spec: guardSpec, retry: 500 * time.Millisecond, settle: 2 * time.Second, log: log}
	keeper.run(ctx)
}

// run keeps the guard spec until ctx ends. That this process ends says nothing
// about nri-gpu, so the guard then stays.
func (k *guardKeeper) run(ctx context.Context) {
	states := make(chan bool)
	var following sync.WaitGroup
	following.Go(func() { k.follow(ctx, states) })
	defer following.Wait()
	tick := time.NewTicker(k.settle)
	defer tick.Stop()

	serving, known := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-states:
			if serving && !now && ctx.Err() == nil {
				k.log.Warn("nri-gpu is no longer connected to the runtime; no GPU container starts until it is")
				k.remove("nri-gpu is no longer connected")
			}
			serving, known = now, true
		case <-tick.C:
			if known && !serving {
				k.removeRemnant()
			}
		}
	}
}

// follow sends each health that nri-gpu announces, and false when it cannot be
// asked.
func (k *guardKeeper) follow(ctx context.Context, states chan<- bool) {
	send := func(serving bool) {
		select {
		case states <- serving:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		err := k.gate.follow(ctx, send)
		k.log.WithError(err).Debug("nri-gpu's health stream ended")
		send(false)
		select {
		case <-ctx.Done():
		case <-time.After(k.retry):
		}
	}
}

func (k *guardKeeper) removeRemnant() {
	info, err := os.Stat(k.spec)
	if err == nil && time.Since(info.ModTime()) > k.settle {
		k.remove("nri-gpu is not connected")
	}
}

func (k *guardKeeper) remove(why string) {
	log := k.log.WithField("spec", k.spec)
	switch err := os.Remove(k.spec); {
	case err == nil:
		log.Infof("removed the guard spec: %s", why)
	case !errors.Is(err, fs.ErrNotExist):
		log.WithError(err).Errorf("could not remove the guard spec though %s; containers will fail at start instead of at creation", why)
	}
}
