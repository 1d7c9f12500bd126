package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nri-gpu/nri-gpu/test/harness"
)

// StartRuntime starts what makes a container, without Kubernetes: containerd and
// our daemons, on a node with the user space of a real driver. The stack is to
// be stopped after an error, too.
func StartRuntime(ctx context.Context, world *harness.World, o Options) (*Stack, error) {
	s, err := newStack(world, o)
	if err != nil {
		return s, err
	}
	driver, err := filepath.Glob(filepath.Join(s.Cache, "driver-*", "root"))
	if err == nil && len(driver) == 0 {
		err = fmt.Errorf("%s has no driver's user space; run hack/fetch-driver.sh", s.Cache)
	}
	if err != nil {
		return s, err
	}
	if s.Node, err = harness.NewDriverNode(world, s.Bin, o.Profile, driver[len(driver)-1]); err != nil {
		return s, err
	}
	if s.Containerd, err = world.StartContainerd(ctx, s.Tools); err != nil {
		return s, err
	}
	if err := s.ImportImages(ctx, s.Tools); err != nil {
		return s, err
	}
	if err := s.Node.StartPlugin(ctx); err != nil {
		return s, err
	}
	if err := s.Node.StartNRI(ctx); err != nil {
		return s, err
	}
	// The device plugin waits for a kubelet, which is not needed here.
	return s, Until(ctx, time.Minute, func(ctx context.Context) error {
		text, err := harness.Body(ctx, "http://"+harness.NRIAddress+"/readyz")
		if err == nil && strings.TrimSpace(text) != "ok" {
			err = errors.New("nri-gpu says: " + text)
		}
		return err
	})
}

// newStack finds what was built.
func newStack(world *harness.World, o Options) (*Stack, error) {
	top, err := filepath.Abs(o.Top)
	if err != nil {
		return nil, err
	}
	cache := os.Getenv("NRI_GPU_CACHE")
	if cache == "" {
		cache = filepath.Join(top, ".cache")
	}
	return &Stack{World: world, Tools: harness.Tools(filepath.Join(cache, "tools", "bin")), Bin: filepath.Join(top, "bin"), Cache: cache}, nil
}
