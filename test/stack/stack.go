// Package stack starts the whole real stack on this machine, for the tests that
// run pods on it: the control plane, a kubelet, containerd, and our daemons on a
// node that plays to have GPUs.
package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/test/harness"
)

// Options say what to start.
type Options struct {
	// Top is the checkout, in which bin/ was built.
	Top string
	// Profile is a machine of test/fakenvml.
	Profile string
	// Kubelet changes the kubelet's configuration.
	Kubelet harness.Kubelet
	// SmallState puts the state directory on a small file system of its own, which
	// can be filled.
	SmallState bool
}

// Stack is the whole of it.
type Stack struct {
	World          *harness.World
	Tools          harness.Tools
	Bin            string
	Cache          string
	Plane          *harness.ControlPlane
	Containerd     *harness.Process
	Kubelet        *harness.Process
	Node           *harness.GPUNode
	Client         kubernetes.Interface
	Profile        fakelib.Config
	kubeletOptions harness.Kubelet
}

// Start starts all of it. The stack is to be stopped after an error, too.
func Start(ctx context.Context, world *harness.World, o Options) (*Stack, error) {
	s, err := newStack(world, o)
	if err != nil {
		return s, err
	}
	if s.Profile, err = fakelib.Load(o.Profile); err != nil {
		return s, err
	}
	if s.Node, err = harness.NewGPUNode(world, s.Bin, o.Profile); err != nil {
		return s, err
	}
	if s.Plane, err = world.StartControlPlane(ctx, s.Tools); err != nil {
		return s, err
	}
	if s.Containerd, err = world.StartContainerd(ctx, s.Tools); err != nil {
		return s, err
	}
	if err := s.ImportImages(ctx, s.Tools); err != nil {
		return s, err
	}
	if o.SmallState {
		if err := s.Node.SmallState(); err != nil {
			return s, err
		}
	}
	if err := s.Node.StartNRI(ctx); err != nil {
		return s, err
	}
	o.Kubelet.Kubeconfig = s.Plane.Kubeconfig
	s.kubeletOptions = o.Kubelet
	if s.Kubelet, err = world.StartKubelet(ctx, s.Tools, o.Kubelet); err != nil {
		return s, err
	}
	if err := s.Node.StartPlugin(ctx); err != nil {
		return s, err
	}
	if err := s.Node.Ready(ctx); err != nil {
		return s, err
	}
	return s, s.join(ctx)
}

// ImportImages gives a containerd the images, with its own client.
func (s *Stack) ImportImages(ctx context.Context, tools harness.Tools) error {
	pause, err := s.World.PauseImage()
	if err != nil {
		return err
	}
	debian := harness.DebianImage(s.Cache)
	for file, image := range map[string]harness.Image{filepath.Join(s.World.Dir, "pause.tar"): pause, debian.Root + ".tar": debian} {
		if err := image.Archive(ctx, file); err != nil {
			return err
		}
		if err := s.World.Import(ctx, tools, file); err != nil {
			return err
		}
	}
	return nil
}

// join waits until the node is ready and its GPUs can be scheduled.
func (s *Stack) join(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.Plane.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	if s.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return Until(ctx, 2*time.Minute, func(ctx context.Context) error {
		node, err := s.Client.CoreV1().Nodes().Get(ctx, harness.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node has taints %v, conditions %v", node.Spec.Taints, node.Status.Conditions)
		}
		if gpus := node.Status.Allocatable[corev1.ResourceName(s.Node.Resource)]; gpus.Value() != 8 {
			return fmt.Errorf("node has %s allocatable GPUs", gpus.String())
		}
		_, err = s.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Until asks until there is no error, or time is up.
func Until(ctx context.Context, within time.Duration, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err // not the deadline's own
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, last)
		case <-tick.C:
		}
	}
}

// Stop stops all of it.
func (s *Stack) Stop() error {
	if s == nil {
		return nil
	}
	processes := []*harness.Process{s.Kubelet, s.Containerd}
	if s.Node != nil {
		processes = []*harness.Process{s.Kubelet, s.Node.Plugin, s.Node.NRI, s.Containerd}
	}
	errs := []error{}
	for _, p := range processes {
		errs = append(errs, p.Stop())
	}
	if s.Plane != nil {
		errs = append(errs, s.Plane.Stop())
	}
	return errors.Join(errs...)
}

// StartKubelet starts the kubelet again, as it was.
func (s *Stack) StartKubelet(ctx context.Context) (err error) {
	s.Kubelet, err = s.World.StartKubelet(ctx, s.Tools, s.kubeletOptions)
	return err
}

// StartContainerd starts containerd again.
func (s *Stack) StartContainerd(ctx context.Context) (err error) {
	s.Containerd, err = s.World.StartContainerd(ctx, s.Tools)
	return err
}
