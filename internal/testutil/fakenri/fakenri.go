// Package fakenri is the runtime's half of NRI, the real one that containerd
// uses, in this process: a plugin connects to its socket and is asked about
// containers.
package fakenri

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// Runtime is a running adaptation.
type Runtime struct {
	adaptation *adaptation.Adaptation
	front      *proxy
	// Synced has a value for every plugin that was synchronised.
	Synced chan struct{}
}

// Options say who the runtime is and what runs on it.
type Options struct {
	// Dir is a short directory; a socket's path is limited to 108 bytes.
	Dir           string
	Name, Version string
	Pods          []*api.PodSandbox
	Containers    []*api.Container
}

// inner is where the adaptation itself listens.
func inner(dir string) string { return filepath.Join(dir, "inner.sock") }

// Socket is where a runtime of a directory listens.
func Socket(dir string) string { return filepath.Join(dir, "nri.sock") }

// Start listens and accepts plugins.
func Start(o Options) (*Runtime, error) {
	r := &Runtime{Synced: make(chan struct{}, 16)}
	// The adaptation synchronises with nobody when it starts.
	var serving atomic.Bool
	synchronise := func(ctx context.Context, cb adaptation.SyncCB) error {
		_, err := cb(ctx, o.Pods, o.Containers)
		if err == nil && serving.Load() {
			r.Synced <- struct{}{}
		}
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	a, err := adaptation.New(o.Name, o.Version, synchronise, update,
		adaptation.WithPluginPath(filepath.Join(o.Dir, "plugins")), adaptation.WithPluginConfigPath(filepath.Join(o.Dir, "conf.d")),
		adaptation.WithSocketPath(inner(o.Dir)))
	if err != nil {
		return nil, fmt.Errorf("make an NRI runtime: %w", err)
	}
	if err := a.Start(); err != nil {
		return nil, fmt.Errorf("start an NRI runtime: %w", err)
	}
	serving.Store(true)
	r.adaptation = a
	if r.front, err = newProxy(Socket(o.Dir), inner(o.Dir)); err != nil {
		a.Stop()
		return nil, err
	}
	return r, nil
}

// Stop closes the socket and every connection, as the end of a runtime's
// process does. The adaptation alone would leave external plugins connected,
// which is why they come in through a proxy.
func (r *Runtime) Stop() {
	r.front.close()
	r.adaptation.Stop()
}

// Create asks the plugins about a new container.
func (r *Runtime) Create(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	block := r.adaptation.BlockPluginSync()
	defer block.Unblock()
	resp, err := r.adaptation.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: c})
	if err != nil {
		return nil, err
	}
	return resp.GetAdjust(), nil
}

// StopContainer tells the plugins that a container ended.
func (r *Runtime) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	_, err := r.adaptation.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: c})
	return err
}
