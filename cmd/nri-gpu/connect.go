package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/nri-gpu/nri-gpu/internal/logging"
)

const (
	pluginName = "nri-gpu"
	// firstWait and lastWait bound the back-off between connections. Each
	// registration can hold up a node's containers for as long as the runtime
	// is stopping one, so the loop is never tight.
	firstWait = 200 * time.Millisecond
	lastWait  = 5 * time.Second
	// registration bounds dialling to Synchronize. It is longer than the
	// runtime's own (5 s), because a runtime that is stopping a container
	// answers late.
	registration = 30 * time.Second
)

// connect keeps a connection to the runtime until ctx ends.
func (d *daemon) connect(ctx context.Context) {
	wait := firstWait
	for ctx.Err() == nil {
		synced, err := d.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if synced {
			wait = firstWait
		}
		d.connection.fail(err)
		d.log.WithError(err).WithField("retry", wait).Warn("not connected to the container runtime")
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, lastWait)
	}
}

// session is one connection, with a stub of its own: a stub that failed to
// register uses its dead connection for ever.
func (d *daemon) session(ctx context.Context) (wasSynced bool, err error) {
	dialled, err := (&net.Dialer{Timeout: lastWait}).DialContext(ctx, "unix", d.cfg.NRISocket)
	if err != nil {
		return false, fmt.Errorf("connect to NRI: %w; is NRI switched on in the container runtime, and is it running", err)
	}
	conn := &watchedConn{Conn: dialled, lost: make(chan struct{})}
	defer conn.Close()
	// The stub's context is that of the requests which it serves, so it lives as
	// long as the session.
	serve, cancel := context.WithCancel(ctx)
	defer cancel()
	synced := make(chan struct{})
	p := d.newPlugin(func() { close(synced) })
	s, err := stub.New(p,
		stub.WithPluginName(pluginName), stub.WithPluginIdx(d.cfg.PluginIndex), stub.WithConnection(conn),
		stub.WithOnClose(conn.markLost), stub.WithLogger(logging.NRI{Log: d.log}),
		// A runtime that knows it fails a request that we do not answer.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}))
	if err != nil {
		return false, fmt.Errorf("make NRI stub: %w", err)
	}
	started := start(serve, s)
	defer p.end(context.WithoutCancel(ctx), s, conn, started)
	if err := register(ctx, started, synced, conn.lost); err != nil {
		return false, err
	}
	p.setDeadline(s.RequestTimeout())
	d.setConnected(true)
	// The guard goes first: from here on nobody would take it away.
	defer d.setConnected(false)
	select {
	case <-conn.lost:
		return true, errors.New("the runtime closed the connection")
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// starting is a stub's Start under way.
type starting struct {
	done chan struct{}
	err  error // valid when done is closed
}

func start(ctx context.Context, s stub.Stub) *starting {
	st := &starting{done: make(chan struct{})}
	go func() {
		defer close(st.done)
		st.err = s.Start(ctx)
	}()
	return st
}

// register waits until Start has returned and Synchronize was called, which
// alone means that the runtime calls us.
func register(ctx context.Context, st *starting, synced, lost <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, registration)
	defer cancel()
	for _, step := range []<-chan struct{}{st.done, synced} {
		select {
		case <-step:
			if step == st.done && st.err != nil {
				return fmt.Errorf("register with NRI: %w", st.err)
			}
		case <-lost:
			return errors.New("the runtime closed the connection while we registered")
		case <-ctx.Done():
			return fmt.Errorf("register with NRI: %w; the runtime may be busy stopping a container", ctx.Err())
		}
	}
	return nil
}

// letGo is how long a stub has to notice that its connection is closed.
const letGo = 500 * time.Millisecond

// end closes the connection and waits until the stub has let go of it. A stub
// whose peer goes away between Register and Configure waits for Configure for
// ever, holding its lock; it is given one, which fails.
func (p *plugin) end(ctx context.Context, s stub.Stub, conn net.Conn, st *starting) {
	p.over.Store(true)
	_ = conn.Close() // it may be closed already
	select {
	case <-st.done:
	case <-time.After(letGo):
		if service, ok := s.(api.PluginService); ok {
			_, _ = service.Configure(ctx, &api.ConfigureRequest{}) // its error is what ends Start
		}
		<-st.done
	}
	s.Stop()
}

// watchedConn tells when a connection is lost. The stub's own callback cannot be
// relied on: it waits for the stub's lock.
type watchedConn struct {
	net.Conn
	once sync.Once
	lost chan struct{}
}

// Read marks the connection as lost when it fails.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.markLost()
	}
	return n, err
}

func (c *watchedConn) markLost() { c.once.Do(func() { close(c.lost) }) }

// setDeadline keeps us well within the runtime's own.
func (p *plugin) setDeadline(request time.Duration) {
	p.deadline.Store(int64(min(defaultDeadline, request*2/5)))
}
