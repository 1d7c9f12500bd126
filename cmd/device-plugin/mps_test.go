package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

const sharedByMPS = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"

// program makes one of the driver's programs the fake, which is this test.
func (b *bench) program(name string) {
	b.t.Helper()
	self, err := os.Executable()
	require.NoError(b.t, err)
	data, err := os.ReadFile(self)
	require.NoError(b.t, err)
	path := filepath.Join(b.cfg.HostRoot, "usr/bin", name)
	require.NoError(b.t, os.Remove(path))
	require.NoError(b.t, os.WriteFile(path, data, 0o755))
}

func TestACardSharedByMPSIsOfferedWhileItsDaemonServes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.cfg.ConfigFile = filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(b.cfg.ConfigFile, []byte(sharedByMPS), 0o644))
	b.start()
	b.kubelet.Wait("eight replicas, of which none may be used: the programs do nothing", func(v *fakekubelet.View) bool {
		return len(v.Devices) == 8 && v.Healthy() == 0
	})
	for _, name := range []string{"nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"} {
		b.program(name)
	}
	b.kubelet.Wait("all may be used", healthy(8))
	resolver := cdi.NewResolver(b.cfg.State().SpecDir(), nil)
	require.NoError(t, resolver.Load())
	injection, err := resolver.Resolve(cdi.Request{Names: []cdi.Name{{Kind: cdi.KindGPU, Device: "GPU-0"}, {Kind: cdi.KindGPU, Device: "GPU-1"}}})
	require.NoError(t, err)
	require.Len(t, injection.Env, 1)
	require.Contains(t, injection.Env[0], "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(b.cfg.StateDir, "mps"))
	var shm bool
	for _, m := range injection.Mounts {
		shm = shm || m.Destination == "/dev/shm"
	}
	require.True(t, shm, "clients and daemon share memory")

	require.NoError(t, os.WriteFile(b.cfg.ConfigFile, []byte("version: v1\n"), 0o644))
	b.kubelet.Wait("whole cards", offers(map[string][]string{"nvidia.com/gpu": {"GPU-0", "GPU-1"}}))
	require.Eventually(t, func() bool {
		require.NoError(t, resolver.Load())
		injection, err = resolver.Resolve(cdi.Request{Names: []cdi.Name{{Kind: cdi.KindGPU, Device: "GPU-0"}}})
		return err == nil && len(injection.Env) == 0
	}, 20*time.Second, 10*time.Millisecond)
}
