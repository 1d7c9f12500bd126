package mps

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// worker serves one resource, one epoch after another.
type worker struct {
	cfg      *Config
	programs Programs
	res      Resource
	// fault says why the resource cannot be served at all.
	fault  error
	log    logrus.FieldLogger
	cancel context.CancelFunc
	// done is closed when nothing of the worker is left.
	done chan struct{}

	mu     sync.Mutex
	status Status
	// present is the present epoch.
	present *epoch
}

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// start runs the worker once those before it have ended.
func (w *worker) start(ctx context.Context, before []*worker) {
	ctx, w.cancel = context.WithCancel(ctx)
	if w.fault != nil {
		w.failed(nil, "%v", w.fault)
		close(w.done)
		return
	}
	go func() {
		defer close(w.done)
		for _, b := range before {
			<-b.done // every stop has its deadlines
		}
		w.serve(ctx)
		w.cfg.release(context.WithoutCancel(ctx), &w.programs, w.cfg.resourceDir(&w.res), w.log)
		w.pending(nil, "its MPS daemon was stopped")
	}()
}

// serve replaces one daemon by the next until ctx ends.
func (w *worker) serve(ctx context.Context) {
	var pause time.Duration
	for ctx.Err() == nil {
		served, err := w.live(ctx)
		if ctx.Err() != nil {
			return
		}
		if served >= w.cfg.Timing.BackoffMax {
			pause = 0
		}
		pause = min(max(2*pause, w.cfg.Timing.BackoffMin), w.cfg.Timing.BackoffMax)
		w.failed(nil, "%v; it is started again in %s", err, pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// live is one life of a daemon, from its directories to their end. It returns
// how long it was ready, and why it ended.
func (w *worker) live(ctx context.Context) (served time.Duration, err error) {
	if err := w.programs.complete(); err != nil {
		return 0, err
	}
	e, err := w.cfg.makeDirs(&w.res)
	if err != nil {
		return 0, err
	}
	w.pending(e, "its MPS daemon is being started")
	defer w.clear(e)
	if err := w.exclusive(ctx, e); err != nil {
		return 0, err
	}
	p, err := w.launch(context.WithoutCancel(ctx), e)
	if err != nil {
		return 0, err
	}
	defer w.end(ctx, e, p)
	if err := w.bringUp(ctx, e, p); err != nil {
		return 0, err
	}
	since := time.Now()
	w.ready(e)
	if err = w.watch(ctx, e, p); err != nil {
		w.failed(e, "%v", err) // before the clearing away, which may take a while
	}
	return time.Since(since), err
}

// clear removes what an epoch leaves; what cannot be removed is in the log, and
// the next start of this program tries again.
func (w *worker) clear(e *epoch) {
	if err := errors.Join(killMarked(e.base, w.cfg.Timing.Answer), e.remove()); err != nil {
		w.log.WithError(err).Warn("something of an ended MPS daemon is left")
	}
}

// launch starts the daemon in the foreground. The end of ctx kills it, so ctx is
// one without.
func (w *worker) launch(ctx context.Context, e *epoch) (*process, error) {
	out, err := e.output()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := w.control(e).command(ctx, "-f")
	cmd.Env = append(cmd.Env, w.daemonEnv(e)...)
	cmd.Stdout, cmd.Stderr = out, out
	w.mu.Lock()
	w.status.Starts++
	w.mu.Unlock()
	p, err := startProcess(cmd, e.shm)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", w.programs.Control, err)
	}
	return p, nil
}

// bringUp waits for the daemon's first answer and sets the limits.
func (w *worker) bringUp(ctx context.Context, e *epoch, p *process) error {
	deadline := time.NewTimer(w.cfg.Timing.Start)
	defer deadline.Stop()
	again := time.NewTicker(min(w.cfg.Timing.Query, 100*time.Millisecond))
	defer again.Stop()
	c := w.control(e)
	for {
		_, err := c.threads(ctx)
		if err == nil {
			return w.limit(ctx, c, e)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.done:
			return e.why(p)
		case <-deadline.C:
			return fmt.Errorf("its MPS daemon did not answer within %s of its start: %w%s", w.cfg.Timing.Start, err, e.lastWords())
		case <-again.C:
		}
	}
}

// watch returns when the daemon has ended or does not answer any more; nil when
// ctx has ended.
func (w *worker) watch(ctx context.Context, e *epoch, p *process) error {
	tick := time.NewTicker(w.cfg.Timing.Query)
	defer tick.Stop()
	for misses := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-p.done:
			return e.why(p)
		case <-tick.C:
		}
		err := w.verify(ctx, e)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			misses = 0
			w.ready(e)
			e.trimLogs(w.log)
			if card := w.regained(ctx, e); card != "" {
				return fmt.Errorf("%s can be served again", card)
			}
			continue
		}
		if misses++; misses >= w.cfg.Timing.Misses {
			return fmt.Errorf("its MPS daemon was asked %d times: %w", misses, err)
		}
		w.failed(e, "its MPS daemon has a fault (%d of %d before it is replaced): %v", misses, w.cfg.Timing.Misses, err)
	}
}

// end stops the daemon: with quit when this worker stops, else at once. A daemon
// that quits waits for its clients, and the program that told it may wait too.
func (w *worker) end(ctx context.Context, e *epoch, p *process) {
	if ctx.Err() != nil && !p.ended() {
		w.pending(e, "its MPS daemon is being stopped")
		w.quit(context.WithoutCancel(ctx), e, p)
	}
	if !p.kill(w.cfg.Timing.Answer) {
		w.log.Errorf("the MPS daemon (process %d) does not end even when killed: it hangs in the driver; reset the cards, or reboot the node", p.pid)
	}
}

func (w *worker) quit(ctx context.Context, e *epoch, p *process) {
	stop := w.cfg.Timing.Stop
	deadline := time.Now().Add(stop)
	c := w.control(e)
	c.answer = stop
	if _, err := c.ask(ctx, "quit"); err != nil {
		w.log.WithError(err).Warn("the MPS daemon may not have heard")
		// It may also have ended before it had answered.
		deadline = time.Now().Add(min(time.Until(deadline), w.cfg.Timing.Answer))
	}
	if !p.wait(time.Until(deadline)) {
		w.log.Warnf("the MPS daemon has not quit within %s, since it waits for its clients or hangs; it is killed", stop)
	}
}
