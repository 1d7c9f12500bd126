package fakekubelet

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// dialTimeout is how long a kubelet tries to reach a plugin within Register.
const dialTimeout = 10 * time.Second

// Endpoint is a plugin's socket that a registration was accepted for.
type Endpoint struct {
	kubelet  *Kubelet
	path     string
	resource string
	conn     *grpc.ClientConn
	client   pluginapi.DevicePluginClient
	options  *pluginapi.DevicePluginOptions
	streams  int
	// devices is the last list, on whichever stream it came; nil before.
	devices []*pluginapi.Device
	lists   int
}

// View is what a kubelet sees at one time.
type View struct {
	// Registrations counts all that were asked for.
	Registrations int
	// Endpoints is the number of sockets that are connected.
	Endpoints int
	// Socket is the path of the newest, Streams the number of its open streams
	// and Lists the number of lists that came on them.
	Socket  string
	Streams int
	Lists   int
	// Devices maps the newest endpoint's device IDs to their health.
	Devices map[string]string
	// Offered is Devices for the newest endpoint of each resource.
	Offered map[string]map[string]string
}

// Allocatable lists the healthy devices of a resource, sorted.
func (v *View) Allocatable(resource string) []string {
	out := []string{}
	for _, id := range slices.Sorted(maps.Keys(v.Offered[resource])) {
		if v.Offered[resource][id] == pluginapi.Healthy {
			out = append(out, id)
		}
	}
	return out
}

// Healthy is the number of healthy devices.
func (v *View) Healthy() int {
	n := 0
	for _, h := range v.Devices {
		if h == pluginapi.Healthy {
			n++
		}
	}
	return n
}

// view needs the lock.
func (k *Kubelet) view() *View {
	v := &View{Registrations: len(k.registrations), Endpoints: len(k.endpoints), Offered: map[string]map[string]string{}}
	for _, e := range k.endpoints {
		v.Socket, v.Streams, v.Lists, v.Devices = e.path, e.streams, e.lists, map[string]string{}
		for _, d := range e.devices {
			v.Devices[d.GetID()] = d.GetHealth()
		}
		v.Offered[e.resource] = v.Devices
	}
	return v
}

// Now returns what the kubelet sees.
func (k *Kubelet) Now() *View {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view()
}

// Current returns the newest endpoint's client and options.
func (k *Kubelet) Current() (pluginapi.DevicePluginClient, *pluginapi.DevicePluginOptions) {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.endpoints) == 0 {
		k.t.Fatal("no plugin is registered")
	}
	e := k.endpoints[len(k.endpoints)-1]
	return e.client, e.options
}

// List returns the newest endpoint's last list.
func (k *Kubelet) List() []*pluginapi.Device {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.endpoints) == 0 {
		return nil
	}
	return slices.Clone(k.endpoints[len(k.endpoints)-1].devices)
}

// CloseStreams breaks the connection to every plugin, as an error on a stream
// does.
func (k *Kubelet) CloseStreams() {
	k.mu.Lock()
	endpoints := slices.Clone(k.endpoints)
	k.mu.Unlock()
	for _, e := range endpoints {
		e.close()
	}
}

// connect is what happens within Register.
func (k *Kubelet) connect(ctx context.Context, req *pluginapi.RegisterRequest) error {
	path := filepath.Join(k.dir, req.GetEndpoint())
	if err := k.admit(path); err != nil {
		return err
	}
	e, err := k.dial(ctx, path, req.GetResourceName())
	if err != nil {
		return status.Errorf(codes.Unknown, "failed to dial device plugin: %v", err)
	}
	k.update(func() {
		k.endpoints = append(k.endpoints, e)
		for range k.script.Streams {
			k.running.Go(func() { e.follow(context.WithoutCancel(ctx)) })
		}
	})
	return nil
}

// admit refuses a path that has an open stream, and says so.
func (k *Kubelet) admit(path string) error {
	k.mu.Lock()
	live := slices.ContainsFunc(k.endpoints, func(e *Endpoint) bool { return e.path == path && e.streams > 0 })
	refused := k.script.KeyedBySocket && (live || k.wedged[path])
	if refused {
		k.wedged[path] = true
	}
	k.mu.Unlock()
	if live {
		k.violate("registered %s while a stream on it is open", path)
	}
	if refused {
		return status.Errorf(codes.Unknown, "device plugin already connected: %s", path)
	}
	return nil
}

func (k *Kubelet) dial(ctx context.Context, path, resource string) (*Endpoint, error) {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	client := pluginapi.NewDevicePluginClient(conn)
	options, err := client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		_ = conn.Close() // the error above says more
		return nil, err
	}
	return &Endpoint{kubelet: k, path: path, resource: resource, conn: conn, client: client, options: options}, nil
}

// close breaks the connection, which ends the streams.
func (e *Endpoint) close() {
	_ = e.conn.Close() // a second close is an error that says nothing
}

// follow is one ListAndWatch stream.
func (e *Endpoint) follow(ctx context.Context) {
	k := e.kubelet
	defer e.disconnect()
	stream, err := e.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return
	}
	k.update(func() { e.streams++ })
	defer k.update(func() { e.streams-- })
	for {
		list, err := stream.Recv()
		if err != nil {
			return
		}
		k.check(e.resource, list.GetDevices())
		k.update(func() {
			e.devices = list.GetDevices()
			e.lists++
		})
	}
}

// disconnect forgets an endpoint whose stream ended; up to 1.36 that takes every
// other endpoint of the resource with it.
func (e *Endpoint) disconnect() {
	k := e.kubelet
	e.close()
	var also []*Endpoint
	k.update(func() {
		keep := func(o *Endpoint) bool { return o != e && (k.script.KeyedBySocket || o.resource != e.resource) }
		var kept []*Endpoint
		for _, o := range k.endpoints {
			if keep(o) {
				kept = append(kept, o)
			} else if o != e {
				also = append(also, o)
			}
		}
		k.endpoints = kept
	})
	for _, o := range also {
		o.close()
	}
}

// check notes what is wrong with a list.
func (k *Kubelet) check(resource string, devices []*pluginapi.Device) {
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.GetID())
	}
	k.update(func() {
		if !slices.IsSorted(ids) {
			k.violations = append(k.violations, fmt.Sprintf("the list %q is not sorted", ids))
		}
		if len(slices.Compact(slices.Clone(ids))) != len(ids) {
			k.violations = append(k.violations, fmt.Sprintf("the list %q names a device twice", ids))
		}
		if k.known[resource] == nil {
			k.known[resource] = map[string]bool{}
		}
		for id := range k.known[resource] {
			if !slices.Contains(ids, id) {
				k.violations = append(k.violations, fmt.Sprintf("the list %q omits %q, which was listed before", ids, id))
			}
		}
		for _, id := range ids {
			k.known[resource][id] = true
		}
	})
}
