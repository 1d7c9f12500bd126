// Package fakekubelet is a kubelet's device manager with a script: it takes
// registrations, follows device lists and makes the calls of an admission, and
// misbehaves on demand as real kubelets have been seen to.
//
// Two generations of behaviour differ in what a registration replaces. Up to
// 1.36 a resource has one client, and the end of an older stream disconnects
// the newer client as well. Since 1.37 clients are told apart by the path of
// their socket: a registration on a path whose stream is open is refused, and
// so is every later one on that path.
//
// Whatever a plugin may never do is recorded and fails the test at its end: a
// device list that omits a device listed before (which makes a real kubelet
// panic), names one twice, or is not sorted; and a registration on a path that
// has an open stream.
package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Checkpoint is the file that every kubelet keeps when it cleans its directory.
const Checkpoint = "kubelet_internal_checkpoint"

// Verdict is what becomes of a registration.
type Verdict int

// The verdicts.
const (
	// Accept dials back, asks for the options and opens the streams.
	Accept Verdict = iota
	// Reject answers an error.
	Reject
	// Hang does not answer until the caller gives up.
	Hang
)

// Script says how a kubelet behaves. The zero value is a 1.36 that accepts
// everything and opens no stream.
type Script struct {
	// KeyedBySocket is the behaviour since 1.37.
	KeyedBySocket bool
	// Streams is how many ListAndWatch streams are opened.
	Streams int
	// Register is the verdict on the n-th registration since the kubelet
	// started, from 1; nil accepts each.
	Register func(n int) Verdict
}

// Kubelet is one node's.
type Kubelet struct {
	t   testing.TB
	dir string

	mu            sync.Mutex
	script        Script
	server        *grpc.Server
	running       *sync.WaitGroup
	since         int // registrations since the start
	registrations []*pluginapi.RegisterRequest
	endpoints     []*Endpoint
	wedged        map[string]bool
	known         map[string]map[string]bool // by resource
	violations    []string
	changed       chan struct{} // closed when anything above changes
}

// New returns a kubelet for a device plugin directory; it does not run yet.
// The test fails at its end if a plugin broke a rule.
func New(tb testing.TB, dir string, script Script) *Kubelet {
	tb.Helper()
	k := &Kubelet{t: tb, dir: dir, script: script, known: map[string]map[string]bool{}, changed: make(chan struct{})}
	tb.Cleanup(func() {
		k.Stop()
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.violations) > 0 {
			tb.Errorf("rules that the plugin broke: %q", k.violations)
		}
	})
	return k
}

// Start makes the directory and kubelet.sock, and serves.
func (k *Kubelet) Start() {
	k.t.Helper()
	require.NoError(k.t, os.MkdirAll(k.dir, 0o750))
	listener := k.listen()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server, k.running, k.since, k.wedged = grpc.NewServer(grpc.WaitForHandlers(true)), &sync.WaitGroup{}, 0, map[string]bool{}
	server := k.server
	pluginapi.RegisterRegistrationServer(server, &registration{kubelet: k})
	k.running.Go(func() {
		// A test that ends at once may stop the server before it serves.
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			k.violate("serve registration: %v", err)
		}
	})
}

// Socket is the path of kubelet.sock.
func (k *Kubelet) Socket() string { return filepath.Join(k.dir, "kubelet.sock") }

// listen binds kubelet.sock and leaves its file when it is closed, as that of a
// kubelet that was killed.
func (k *Kubelet) listen() *net.UnixListener {
	k.t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: k.Socket(), Net: "unix"})
	require.NoError(k.t, err)
	listener.SetUnlinkOnClose(false)
	return listener
}

// Stop ends the kubelet as a kill does: connections break, files stay.
func (k *Kubelet) Stop() {
	k.mu.Lock()
	server, running := k.server, k.running
	k.server = nil
	k.mu.Unlock()
	if server == nil {
		return
	}
	server.Stop() // waits for registrations that are under way
	k.mu.Lock()
	endpoints := slices.Clone(k.endpoints)
	k.mu.Unlock()
	for _, e := range endpoints {
		e.close()
	}
	running.Wait()
	k.update(func() { k.endpoints = nil })
}

// Clean is what a kubelet removes when it starts: sockets, or with all every
// file but its checkpoint, as up to 1.32.
func (k *Kubelet) Clean(all bool) {
	k.t.Helper()
	entries, err := os.ReadDir(k.dir)
	require.NoError(k.t, err)
	for _, e := range entries {
		if e.Type() == os.ModeSocket || (all && !e.IsDir() && e.Name() != Checkpoint) {
			// The plugin may have closed the socket meanwhile.
			require.NoError(k.t, os.RemoveAll(filepath.Join(k.dir, e.Name())))
		}
	}
}

// Restart stops, cleans as a kubelet since 1.33, and starts with a script.
func (k *Kubelet) Restart(script Script) {
	k.t.Helper()
	k.Stop()
	k.Clean(false)
	k.SetScript(script)
	k.Start()
}

// StartSlowly makes kubelet.sock and accepts no connection until proceed is
// called, which starts the kubelet on a new socket.
func (k *Kubelet) StartSlowly() (proceed func()) {
	k.t.Helper()
	listener := k.listen()
	return func() {
		k.t.Helper()
		require.NoError(k.t, listener.Close())
		k.Clean(false)
		k.Start()
	}
}

// SetScript changes the behaviour from the next registration on.
func (k *Kubelet) SetScript(s Script) { k.update(func() { k.script = s }) }

// Registrations returns every registration that was ever asked for.
func (k *Kubelet) Registrations() []*pluginapi.RegisterRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.registrations)
}

// Wait waits until what is asked for holds, looking at each change, and fails
// the test after 20 s.
func (k *Kubelet) Wait(what string, holds func(*View) bool) {
	k.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		k.mu.Lock()
		view, changed := k.view(), k.changed
		k.mu.Unlock()
		if holds(view) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			require.FailNow(k.t, "waited in vain", "for %s; the last view: %+v", what, view)
		}
	}
}

// update changes the state and wakes those who wait for a change.
func (k *Kubelet) update(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *Kubelet) violate(format string, args ...any) {
	k.update(func() { k.violations = append(k.violations, fmt.Sprintf(format, args...)) })
}

// registration is the gRPC service.
type registration struct {
	pluginapi.UnimplementedRegistrationServer
	kubelet *Kubelet
}

// Register follows the script.
func (r *registration) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k := r.kubelet
	var verdict Verdict
	k.update(func() {
		k.since++
		k.registrations = append(k.registrations, req)
		if k.script.Register != nil {
			verdict = k.script.Register(k.since)
		}
	})
	switch verdict {
	case Reject:
		return nil, status.Error(codes.Unknown, "the script rejects this registration")
	case Hang:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case Accept:
	}
	if req.GetVersion() != pluginapi.Version || req.GetResourceName() == "" || filepath.Base(req.GetEndpoint()) != req.GetEndpoint() {
		k.violate("registration %v", req)
		return nil, status.Error(codes.InvalidArgument, "bad registration")
	}
	if err := k.connect(ctx, req); err != nil {
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}
