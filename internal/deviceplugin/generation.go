package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// generation is one socket with its server and its one registration. It is
// never used again after a fault: since 1.37 a kubelet tells its clients apart
// by the socket's path, and a path that was registered twice while its first
// stream was open is of no use until the kubelet restarts.
type generation struct {
	path   string
	file   fileID // of path, to notice that it vanished
	server *grpc.Server
	// streams are those that the kubelet opened on this socket.
	streams *streams
	// done is closed to end the streams, and cancel ends Register.
	done    chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// registered is when the kubelet accepted; zero before.
	registered time.Time
	// failed is why Register, or the server, is of no use any more.
	failed error
}

// open listens on a new socket, serves, and registers it.
func (r *registrar) open(ctx context.Context) (*generation, error) {
	path, err := r.nextPath()
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on a socket in the kubelet's directory: %w", err)
	}
	file, err := identify(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at our new socket: %w", err), listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &generation{
		path: path, file: file, server: grpc.NewServer(), done: make(chan struct{}), cancel: cancel,
		streams: &streams{changed: r.plugin.wake.Wake},
	}
	pluginapi.RegisterDevicePluginServer(g.server, &service{plugin: r.plugin, streams: g.streams, done: g.done})
	g.running.Go(func() {
		if err := g.server.Serve(listener); err != nil {
			g.fail(fmt.Errorf("serve %q: %w", path, err))
			r.plugin.wake.Wake()
		}
	})
	// The kubelet dials back within Register. The listener is there already,
	// so it cannot be too early.
	g.running.Go(func() {
		g.register(ctx, r.plugin)
		r.plugin.wake.Wake()
	})
	return g, nil
}

func (g *generation) register(ctx context.Context, p *Plugin) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.register)
	defer cancel()
	err := callRegister(ctx, kubeletSocket(p.cfg), &pluginapi.RegisterRequest{
		Version:      pluginapi.Version,
		Endpoint:     filepath.Base(g.path),
		ResourceName: p.cfg.Resource,
		Options:      p.options(),
	})
	p.metrics.registrations.WithLabelValues(result(err)).Inc()
	if err != nil {
		g.fail(err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.registered = time.Now()
}

func callRegister(ctx context.Context, socket string, req *pluginapi.RegisterRequest) error {
	conn, err := dialUnix(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := pluginapi.NewRegistrationClient(conn).Register(ctx, req); err != nil {
		return fmt.Errorf("register with the kubelet on %q: %w", socket, err)
	}
	return nil
}

func (g *generation) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = errors.Join(g.failed, err)
}

// fault returns why this generation must be replaced; nil while it serves, or
// may yet.
func (g *generation) fault(now time.Time, grace time.Duration) error {
	g.mu.Lock()
	failed, registered := g.failed, g.registered
	g.mu.Unlock()
	if failed != nil {
		return failed
	}
	if file, err := identify(g.path); err != nil || !file.sameInode(g.file) {
		return fmt.Errorf("our socket %q was removed", g.path)
	}
	if registered.IsZero() {
		return nil // Register is under way and has a deadline
	}
	open, ever := g.streams.count()
	switch {
	case open > 0:
		return nil
	case ever:
		return errors.New("the kubelet closed the stream of the device list")
	case now.Sub(registered) >= grace:
		return fmt.Errorf("the kubelet accepted the registration and did not ask for the device list within %s", grace)
	}
	return nil
}

// close ends the streams, lets calls end, and removes the socket.
func (g *generation) close(patience time.Duration) {
	g.cancel()
	close(g.done)
	stopped := make(chan struct{})
	g.running.Go(func() {
		g.server.GracefulStop()
		close(stopped)
	})
	select {
	case <-stopped:
	case <-time.After(patience):
		g.server.Stop() // which ends GracefulStop as well
	}
	g.running.Wait()
}

// streams counts the streams on which the list was sent.
type streams struct {
	changed func()

	mu   sync.Mutex
	open int
	ever bool
}

func (s *streams) opened() { s.add(1) }

func (s *streams) closed() { s.add(-1) }

func (s *streams) add(n int) {
	s.mu.Lock()
	s.open += n
	s.ever = true
	s.mu.Unlock()
	s.changed()
}

// count returns how many are open, and whether any ever was.
func (s *streams) count() (open int, ever bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.ever
}
