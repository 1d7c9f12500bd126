package features_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

func TestValuesAreMadeValid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 62)
	for model, want := range map[string]string{
		"NVIDIA TITAN X (Pascal)":  "NVIDIA-TITAN-X-Pascal",
		"  two \t blanks ":         "two-blanks",
		"-_.edge._-":               "edge",
		"(Ü)":                      "",
		long + "-y":                long,
		strings.Repeat("y", 1000):  strings.Repeat("y", 63),
		"line\nkey=value":          "line-keyvalue",
		"NVIDIA RTX PRO 6000, 5.0": "NVIDIA-RTX-PRO-6000-5.0",
	} {
		inv := node(model)
		got := features.Labels(&inv, &features.Sharing{}, model)
		requireValid(t, got)
		require.Equal(t, want, get(got, "gpu.product"), model)
	}
}

func TestALongProductKeepsItsSuffix(t *testing.T) {
	t.Parallel()
	inv := node(strings.Repeat("x", 80))
	sharing := timeSlicing(2)
	require.Equal(t, strings.Repeat("x", 63-len("-SHARED"))+"-SHARED", get(features.Labels(&inv, &sharing, ""), "gpu.product"))
}

func TestEveryModelHasItsOwnKeys(t *testing.T) {
	t.Parallel()
	// The longest name that NVIDIA has given so far fits.
	inv := node("NVIDIA RTX PRO 6000 Blackwell Server Edition")
	got := features.Labels(&inv, &features.Sharing{}, "")
	for _, attribute := range []string{"count", "memory", "family", "compute", "replicas"} {
		require.NotEmpty(t, get(got, "gpu.model.NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition."+attribute))
	}
	// A longer one is cut, and told from another that begins the same.
	long := strings.Repeat("x", 70)
	inv = node(long+"1", long+"2", long+"2", "A B", "A-B")
	got = features.Labels(&inv, &features.Sharing{}, "")
	requireValid(t, got)
	counts := map[string]int{}
	for k, v := range got {
		if strings.HasPrefix(k, features.Prefix+"gpu.model.") && strings.HasSuffix(k, ".count") {
			counts[v]++
		}
	}
	require.Equal(t, map[string]int{"1": 3, "2": 1}, counts, "%v", got)
	require.Equal(t, "1", get(got, "gpu.model.A-B-77101aaa.count"), "%v", got)
}

// FuzzLabels feeds text from firmware and driver: whatever it is, the labels
// are valid.
func FuzzLabels(f *testing.F) {
	f.Add("NVIDIA TITAN X (Pascal)", "1g.10gb+me", "8.0", "535.309.01", "12.2", "PowerEdge", uint64(1), 2)
	f.Add("-", "", ".", "..", ".", "\x00", uint64(0), 0)
	f.Add(strings.Repeat("x.", 60), strings.Repeat("1g.", 40), "8.-", "a.b.c", "-.-", strings.Repeat("é", 90), ^uint64(0), 1<<40)
	f.Fuzz(func(t *testing.T, model, profile, compute, driver, cuda, machine string, memory uint64, replicas int) {
		inv := node(model, "Tesla T4")
		inv.Driver.Version, inv.Driver.CUDAVersion = driver, cuda
		g := &inv.GPUs[0]
		g.MemoryBytes, g.ComputeCapability, g.MIGEnabled, g.Architecture = memory, compute, true, profile
		g.Fabric = &device.Fabric{ClusterUUID: machine}
		g.VGPU = &device.VGPU{Present: true, HostDriverVersion: model, HostDriverBranch: driver}
		g.MIGDevices = []device.MIGDevice{{UUID: "MIG-0", Profile: profile, MemoryBytes: memory, Attributes: &device.MIGAttributes{GPUSlices: replicas}}}
		sharing := timeSlicing(replicas)
		sharing.ReplicasOf = map[string]int{"MIG-0": replicas}
		for _, strategy := range []resources.MIGStrategy{resources.MIGNone, resources.MIGSingle, resources.MIGMixed} {
			sharing.MIGStrategy = strategy
			got := features.Labels(&inv, &sharing, machine)
			requireValid(t, got)
			require.Equal(t, len(got), strings.Count(features.Encode(got), "\n"), "one line for each")
		}
	})
}
