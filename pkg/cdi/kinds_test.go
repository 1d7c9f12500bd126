package cdi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

func TestParseCapabilitiesSortsAndKeepsEachOnce(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]cdi.Capability{
		"":                          nil,
		" , ":                       nil,
		"utility,compute":           {cdi.Compute, cdi.Utility},
		"video, compute ,video":     {cdi.Compute, cdi.Video},
		"all":                       cdi.AllCapabilities(),
		"compute,all,graphics,all,": cdi.AllCapabilities(),
	} {
		got, err := cdi.ParseCapabilities(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	_, err := cdi.ParseCapabilities("compute,Graphics")
	require.ErrorContains(t, err, `"Graphics"`)
}

func TestNamesOfFilesAndDevicesAreWhatCDIAccepts(t *testing.T) {
	t.Parallel()
	require.Equal(t, "nri-gpu.io-gpu.json", cdi.SpecFileName(cdi.KindGPU))
	require.Equal(t, "MIG-GPU-6c1c_1_0", cdi.DeviceName("MIG-GPU-6c1c/1/0"))
}
