package mps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// The edits in a private spec, as the resolver reads it: a container is not
// started without the pipe, and keeps a /dev/shm of its own.
func TestEditsInASpecRequireThePipeAndNotTheSharedMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t).run(gpus(gpu, 4, "GPU-0"))
	b.ready(gpu)
	edits, required, err := b.m.ContainerEdits(gpu)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(kind string, d specs.Device) {
		data, err := cdi.EncodeSpec(&specs.Spec{Kind: kind, Devices: []specs.Device{d}}, cdi.JSON, "")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, cdi.SpecFileName(kind)), data, 0o644))
	}
	kind := cdi.Vendor + "/mps"
	write(kind, specs.Device{Name: "nvidia.com_gpu", ContainerEdits: edits, Annotations: map[string]string{cdi.RequiredAnnotation: strings.Join(required, ":")}})
	write(cdi.KindDriver, specs.Device{Name: cdi.DriverControl, ContainerEdits: specs.ContainerEdits{Env: []string{"A=b"}}})
	resolver := cdi.NewResolver(dir, nil)
	require.NoError(t, resolver.Load())
	request := cdi.Request{Names: []cdi.Name{{Kind: kind, Device: "nvidia.com_gpu"}}}
	injection, err := resolver.Resolve(request)
	require.NoError(t, err)
	require.Contains(t, injection.Env, "CUDA_MPS_PIPE_DIRECTORY="+b.pipe())
	require.Equal(t, map[string]bool{b.pipe(): true, "/dev/shm": false}, injection.Required)
	require.Len(t, injection.Mounts, 2)

	// Those of an epoch that is over are refused.
	b.stop()
	_, err = resolver.Resolve(request)
	var stale *cdi.StaleError
	require.ErrorAs(t, err, &stale)
}
