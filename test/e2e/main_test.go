//go:build e2e

// Package e2e runs pods with GPUs on the whole real stack: etcd, the control
// plane, a kubelet, containerd, runc, and our daemons on a node that plays to
// have eight GPUs. One cluster serves all tests; a test that stops a part of it
// starts it again. The files are one scenario each.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/test/harness"
)

// cluster is what every test uses.
var cluster *stack

// stack is the whole of it.
type stack struct {
	world      *harness.World
	tools      harness.Tools
	bin        string
	cache      string
	plane      *harness.ControlPlane
	containerd *harness.Process
	kubelet    *harness.Process
	node       *harness.GPUNode
	client     kubernetes.Interface
	profile    fakelib.Config
}

func TestMain(m *testing.M) {
	world, err := harness.Enter()
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	cluster, err = start(ctx, world)
	if err != nil {
		panic(errors.Join(err, cluster.stop()))
	}
	m.Run()
	if err := cluster.stop(); err != nil {
		panic(err)
	}
}

func start(ctx context.Context, world *harness.World) (*stack, error) {
	top, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	cache := os.Getenv("NRI_GPU_CACHE")
	if cache == "" {
		cache = filepath.Join(top, ".cache")
	}
	s := &stack{world: world, tools: harness.Tools(filepath.Join(cache, "tools", "bin")), bin: filepath.Join(top, "bin"), cache: cache}
	if s.profile, err = fakelib.Load("a100x8"); err != nil {
		return s, err
	}
	if s.node, err = harness.NewGPUNode(world, s.bin, "a100x8"); err != nil {
		return s, err
	}
	if s.plane, err = world.StartControlPlane(ctx, s.tools); err != nil {
		return s, err
	}
	if s.containerd, err = world.StartContainerd(ctx, s.tools); err != nil {
		return s, err
	}
	if err := s.importImages(ctx, s.tools); err != nil {
		return s, err
	}
	if err := s.node.StartNRI(ctx); err != nil {
		return s, err
	}
	if s.kubelet, err = world.StartKubelet(ctx, s.tools, harness.Kubelet{Kubeconfig: s.plane.Kubeconfig}); err != nil {
		return s, err
	}
	if err := s.node.StartPlugin(ctx); err != nil {
		return s, err
	}
	if err := s.node.Ready(ctx); err != nil {
		return s, err
	}
	return s, s.join(ctx)
}

// importImages gives a containerd the images, with its own client.
func (s *stack) importImages(ctx context.Context, tools harness.Tools) error {
	pause, err := s.world.PauseImage()
	if err != nil {
		return err
	}
	debian := harness.DebianImage(s.cache)
	for file, image := range map[string]harness.Image{filepath.Join(s.world.Dir, "pause.tar"): pause, debian.Root + ".tar": debian} {
		if err := image.Archive(ctx, file); err != nil {
			return err
		}
		if err := s.world.Import(ctx, tools, file); err != nil {
			return err
		}
	}
	return nil
}

// join waits until the node is ready and its GPUs can be scheduled.
func (s *stack) join(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.plane.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return until(ctx, 2*time.Minute, func(ctx context.Context) error {
		node, err := s.client.CoreV1().Nodes().Get(ctx, harness.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node has taints %v, conditions %v", node.Spec.Taints, node.Status.Conditions)
		}
		if gpus := node.Status.Allocatable[corev1.ResourceName(s.node.Resource)]; gpus.Value() != 8 {
			return fmt.Errorf("node has %s allocatable GPUs", gpus.String())
		}
		_, err = s.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// until asks until there is no error, or time is up.
func until(ctx context.Context, within time.Duration, ok func(context.Context) error) error {
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

func (s *stack) stop() error {
	if s == nil {
		return nil
	}
	errs := []error{}
	for _, p := range []*harness.Process{s.kubelet, s.node.Plugin, s.node.NRI, s.containerd} {
		errs = append(errs, p.Stop())
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop())
	}
	return errors.Join(errs...)
}
