package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/recent"
	"github.com/nri-gpu/nri-gpu/internal/record"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

// defaultDeadline bounds a decision; it is less when the runtime allows less.
const defaultDeadline = time.Second

// plugin answers the runtime over one connection. It subscribes to creation,
// and to StopContainer, without which the record would go on naming a holder;
// every further event would cost every container on the node a call.
type plugin struct {
	injector *inject.Injector
	records  *record.Writer
	metrics  *metrics
	log      logrus.FieldLogger
	// configured is told the runtime's name and version.
	configured func(cdi.Runtime) error
	// synced is called when the runtime has told its containers.
	synced   func()
	deadline atomic.Int64 // nanoseconds
	// over says that the connection is lost, whatever still calls.
	over     atomic.Bool
	inflight *inflight
	recent   *recent.List[decision]
}

var (
	_ stub.ConfigureInterface       = (*plugin)(nil)
	_ stub.SynchronizeInterface     = (*plugin)(nil)
	_ stub.CreateContainerInterface = (*plugin)(nil)
	_ stub.StopContainerInterface   = (*plugin)(nil)
)

// Configure learns who the runtime is.
func (p *plugin) Configure(_ context.Context, _, name, version string) (api.EventMask, error) {
	if p.over.Load() {
		return 0, errors.New("the connection is lost")
	}
	return 0, p.configured(cdi.Runtime{Name: name, Version: version})
}

// Synchronize rebuilds the record from the runtime's containers.
func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	byID := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	var held []record.Container
	for _, c := range containers {
		if names := c.GetAnnotations()[inject.InjectedAnnotation]; names != "" {
			r := describe(byID[c.GetPodSandboxId()], c)
			r.Devices = strings.Split(names, ",")
			held = append(held, r)
		}
	}
	p.records.Reset(held)
	p.log.WithField("containers", len(held)).Info("synchronised with the runtime")
	p.synced()
	return nil, nil
}

// CreateContainer answers within a deadline of our own: a runtime that waits
// longer than its own would create the container without us.
func (p *plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	start := time.Now()
	defer p.inflight.begin()()
	type answer struct {
		decision *inject.Decision
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				p.log.Errorf("panic while deciding: %v\n%s", r, debug.Stack())
				answers <- answer{err: fmt.Errorf("nri-gpu met a fault of its own: %v; see its log", r)}
			}
		}()
		d, err := p.injector.Decide(pod, c)
		answers <- answer{d, err}
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.deadline.Load()))
	defer cancel()
	select {
	case a := <-answers:
		return p.finish(pod, c, a.decision, a.err, time.Since(start))
	case <-ctx.Done():
		err := fmt.Errorf("nri-gpu could not decide within %s, most likely because a file system of the driver does not answer; the container is tried again", time.Duration(p.deadline.Load()))
		return p.finish(pod, c, nil, err, time.Since(start))
	}
}

func (p *plugin) finish(pod *api.PodSandbox, c *api.Container, d *inject.Decision, err error, took time.Duration) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	log := p.log.WithFields(logrus.Fields{"pod": pod.GetName(), "namespace": pod.GetNamespace(), "container": c.GetName()})
	p.remember(pod, c, d, err, took)
	switch {
	case err != nil:
		p.metrics.decided("refused", took)
		log.WithError(err).Warn("refused")
		return nil, nil, err
	case d == nil:
		p.metrics.decided("not-ours", took)
		return nil, nil, nil
	case len(d.Names) == 0 && d.Carrier == "":
		p.withoutDevices(log, d, took)
		return d.Adjustment, nil, nil
	}
	r := describe(pod, c)
	r.Injected, r.Microseconds = time.Now().UTC(), took.Microseconds()
	r.Carrier, r.Skipped = string(d.Carrier), d.Skipped
	for _, n := range d.Names {
		r.Devices = append(r.Devices, n.String())
	}
	for _, capability := range d.Capabilities {
		r.Capabilities = append(r.Capabilities, string(capability))
	}
	p.records.Put(r)
	p.metrics.decided("injected", took)
	log.WithFields(logrus.Fields{"device": strings.Join(r.Devices, ","), "duration": took}).Info("injected")
	for _, s := range d.Skipped {
		log.Warnf("left out %s", s)
	}
	return d.Adjustment, nil, nil
}

// decision is what /debug/state shows of one.
type decision struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	Devices   []string  `json:"devices,omitempty"`
	// Refused is the reason why the container was not created.
	Refused      string `json:"refused,omitempty"`
	Microseconds int64  `json:"microseconds"`
}

// remember keeps the decisions that changed something.
func (p *plugin) remember(pod *api.PodSandbox, c *api.Container, d *inject.Decision, err error, took time.Duration) {
	if err == nil && d == nil {
		return
	}
	out := decision{Time: time.Now().UTC(), Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName(), Microseconds: took.Microseconds()}
	if err != nil {
		out.Refused = err.Error()
	} else {
		for _, n := range d.Names {
			out.Devices = append(out.Devices, n.String())
		}
	}
	p.recent.Add(out)
}

// withoutDevices tells of a container that was allocated none.
func (p *plugin) withoutDevices(log logrus.FieldLogger, d *inject.Decision, took time.Duration) {
	if d.Adjustment != nil {
		p.metrics.decided("environment", took)
		log.Debug("took NVIDIA_VISIBLE_DEVICES back")
	} else {
		p.metrics.decided("not-ours", took)
	}
	if len(d.Unallocated) > 0 {
		p.metrics.unallocated.Inc()
		log.WithField("node", strings.Join(d.Unallocated, ",")).Warn("the container has NVIDIA device nodes without an allocation; Kubernetes gives every node of the host to a privileged one (--unallocated=deny refuses it)")
	}
}

// StopContainer ends the record: the container holds no card any more.
func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.records.Remove(c.GetId())
	return nil, nil
}

func describe(pod *api.PodSandbox, c *api.Container) record.Container {
	return record.Container{ID: c.GetId(), Name: c.GetName(), Pod: pod.GetName(), Namespace: pod.GetNamespace(), PodUID: pod.GetUid()}
}
