package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/deviceplugin"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// plugins has one plugin for each resource that was ever offered. One that is
// offered no more stays, with devices that are unhealthy: the kubelet would
// otherwise go on counting them for minutes.
type plugins struct {
	make func(resource string) (*deviceplugin.Plugin, error)
	log  logrus.FieldLogger

	mu      sync.Mutex
	byName  map[string]*deviceplugin.Plugin
	start   func(*deviceplugin.Plugin) // nil before run
	refused map[string]string
}

func newPlugins(log logrus.FieldLogger, create func(string) (*deviceplugin.Plugin, error)) *plugins {
	return &plugins{make: create, log: log, byName: map[string]*deviceplugin.Plugin{}, refused: map[string]string{}}
}

// add makes the plugin of a resource, if there is none.
func (p *plugins) add(resource string) (*deviceplugin.Plugin, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.byName[resource]; known != nil {
		return known, nil
	}
	made, err := p.make(resource)
	if err != nil {
		return nil, err
	}
	p.byName[resource] = made
	if p.start != nil {
		p.start(made)
	}
	return made, nil
}

// run runs every plugin, those that come later too, until ctx ends.
func (p *plugins) run(ctx context.Context) {
	var running sync.WaitGroup
	p.mu.Lock()
	p.start = func(one *deviceplugin.Plugin) { running.Go(func() { one.Run(ctx) }) }
	for _, one := range p.byName {
		p.start(one)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.start = nil // none is started after this
	p.mu.Unlock()
	running.Wait()
}

// offer advertises a plan. A resource that cannot be served costs itself.
func (p *plugins) offer(plan resources.Plan, inv device.Inventory) {
	offered := map[string]bool{}
	for _, r := range plan.Resources {
		offered[r.Name] = true
		one, err := p.add(r.Name)
		if err != nil {
			if p.refused[r.Name] != err.Error() {
				p.log.WithError(err).WithField("resource", r.Name).Error("the resource is not served")
			}
			p.refused[r.Name] = err.Error()
			continue
		}
		one.SetDevices(r, inv)
	}
	for _, name := range p.names() {
		if !offered[name] {
			p.get(name).SetDevices(resources.Resource{Name: name}, inv)
		}
	}
}

func (p *plugins) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.byName))
}

func (p *plugins) get(name string) *deviceplugin.Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name]
}

// notReady says which resource waits for what.
func (p *plugins) notReady() []string {
	var out []string
	names := p.names()
	for _, name := range names {
		for _, why := range p.get(name).NotReady() {
			if len(names) > 1 {
				why = name + ": " + why
			}
			out = append(out, why)
		}
	}
	return out
}

func (p *plugins) state() []deviceplugin.State {
	out := []deviceplugin.State{}
	for _, name := range p.names() {
		out = append(out, p.get(name).State())
	}
	return out
}
