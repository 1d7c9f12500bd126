package main

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	conn, err := (&net.Dialer{Timeout: lastWait}).DialContext(ctx, "unix", d.cfg.NRISocket)
	if err != nil {
		return false, fmt.Errorf("connect to NRI: %w; is NRI switched on in the container runtime, and is it running", err)
	}
	// Closing the connection is what ends every wait of the stub. Its context is
	// that of the requests which it serves, so it lives as long as the session.
	defer conn.Close()
	serve, cancel := context.WithCancel(ctx)
	defer cancel()
	closed := make(chan struct{})
	synced := make(chan struct{})
	p := d.newPlugin(func() { close(synced) })
	s, err := stub.New(p,
		stub.WithPluginName(pluginName), stub.WithPluginIdx(d.cfg.PluginIndex), stub.WithConnection(conn),
		stub.WithOnClose(func() { close(closed) }), stub.WithLogger(logging.NRI{Log: d.log}),
		// A runtime that knows it fails a request that we do not answer.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}))
	if err != nil {
		return false, fmt.Errorf("make NRI stub: %w", err)
	}
	start := func() error { return s.Start(serve) }
	if err := d.register(ctx, start, conn, synced, closed); err != nil {
		s.Stop()
		return false, err
	}
	p.setDeadline(s.RequestTimeout())
	d.setConnected(true)
	select {
	case <-closed:
		err = errors.New("the runtime closed the connection")
	case <-ctx.Done():
		err = ctx.Err()
	}
	// The guard goes first: from here on nobody would take it away.
	d.setConnected(false)
	s.Stop()
	return true, err
}

// register starts the stub and waits for Synchronize, which alone means that
// the runtime calls us.
func (d *daemon) register(ctx context.Context, start func() error, conn net.Conn, synced, closed <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, registration)
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- start() }()
	for {
		select {
		case err := <-started:
			if err != nil {
				return fmt.Errorf("register with NRI: %w", err)
			}
			started = nil
		case <-synced:
			if started != nil {
				if err := <-started; err != nil {
					return fmt.Errorf("register with NRI: %w", err)
				}
			}
			return nil
		case <-closed:
			return errors.New("the runtime closed the connection while we registered")
		case <-ctx.Done():
			// Start does not honour its context while it waits for Configure.
			_ = conn.Close()
			var cause error
			if started != nil {
				cause = <-started
			}
			return fmt.Errorf("register with NRI: %w; the runtime may be busy stopping a container", errors.Join(ctx.Err(), cause))
		}
	}
}

// setDeadline keeps us well within the runtime's own.
func (p *plugin) setDeadline(request time.Duration) {
	p.deadline.Store(int64(min(defaultDeadline, request*2/5)))
}
