package features_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
)

var value = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

// requireValid holds the labels against Kubernetes' own rules and the stricter
// one that a value is not empty.
func requireValid(t *testing.T, labels map[string]string) {
	t.Helper()
	for k, v := range labels {
		require.Empty(t, validation.IsQualifiedName(k), k)
		require.Empty(t, validation.IsValidLabelValue(v), "%s=%s", k, v)
		require.Regexp(t, value, v, k)
		require.True(t, strings.HasPrefix(k, features.Prefix), k)
	}
}

func healthy() device.Health { return device.Health{Healthy: true} }

// node has cards of the given models.
func node(models ...string) device.Inventory {
	inv := device.Inventory{Driver: device.Driver{State: device.DriverReady, Version: "535.309.01", CUDAVersion: "12.2"}}
	for i, m := range models {
		inv.GPUs = append(inv.GPUs, device.GPU{
			UUID: fmt.Sprintf("GPU-%d", i), Index: i, Model: m, MemoryBytes: 16 << 30, ComputeCapability: "7.5", Health: healthy(),
			PCIClass: "0x030200", VGPU: &device.VGPU{}, MIGCapable: new(false),
		})
	}
	return inv
}

func get(labels map[string]string, key string) string { return labels[features.Prefix+key] }

func TestANodeOfSeveralModelsHasTheSameLabelsEachTime(t *testing.T) {
	t.Parallel()
	inv := node("NVIDIA A100", "NVIDIA T400", "NVIDIA A100", "Tesla T4", "Tesla T4")
	want := features.Labels(&inv, &features.Sharing{}, "m")
	require.Equal(t, "NVIDIA-A100", get(want, "gpu.product"), "of the two largest the first by name")
	require.Equal(t, "2", get(want, "gpu.count"))
	require.Equal(t, "1", get(want, "gpu.model.NVIDIA-T400.count"))
	for range 100 {
		rand.Shuffle(len(inv.GPUs), func(i, j int) { inv.GPUs[i], inv.GPUs[j] = inv.GPUs[j], inv.GPUs[i] })
		require.Equal(t, want, features.Labels(&inv, &features.Sharing{}, "m"))
	}
}

func TestTheLargestModelStaysItWhenItLosesCards(t *testing.T) {
	t.Parallel()
	inv := node("Tesla T4", "Tesla T4", "Tesla T4", "NVIDIA A100", "NVIDIA A100")
	before := features.Labels(&inv, &features.Sharing{}, "m")
	inv.GPUs[0].Health = device.Health{Reason: "it fell off the bus"}
	inv.GPUs[2].Health = inv.GPUs[0].Health
	after := features.Labels(&inv, &features.Sharing{}, "m")
	before[features.Prefix+"gpu.count"], before[features.Prefix+"gpu.model.Tesla-T4.count"] = "1", "1"
	require.Equal(t, before, after)
}

func TestALostCardOfWhichLittleIsKnownLowersTheCountOnly(t *testing.T) {
	t.Parallel()
	inv := node("Tesla T4", "Tesla T4")
	want := features.Labels(&inv, &features.Sharing{}, "m")
	want[features.Prefix+"gpu.count"], want[features.Prefix+"gpu.model.Tesla-T4.count"] = "1", "1"
	inv.GPUs[1] = device.GPU{UUID: "GPU-1", Index: 1, Model: "Tesla T4", NUMANode: -1, Health: device.Health{Reason: "GPU is lost"}}
	got := features.Labels(&inv, &features.Sharing{}, "m")
	require.Equal(t, want, got)
}

// kinds is a machine on which every label has a source: cards as a whole and
// in MIG mode, on a fabric.
func kinds(t *testing.T) fakelib.Config {
	t.Helper()
	config := profile(t, "h100x8-mig")
	for i := range 8 {
		config.Device(i)["fabric"] = map[string]any{"cluster": "0badc0de-0001-4000-8000-0000000000ff", "clique": 1}
	}
	return config
}

func TestOneQueryThatFailsLeavesItsOwnLabelsOut(t *testing.T) {
	t.Parallel()
	sharing := features.Sharing{MIGStrategy: resources.MIGMixed}
	inv := discover(t, kinds(t))
	all := features.Labels(&inv, &sharing, "m")
	for call, omitted := range map[string]string{
		"nvmlSystemGetDriverVersion":          `^cuda\.driver`,
		"nvmlSystemGetCudaDriverVersion":      `^cuda\.runtime`,
		"nvmlDeviceGetName":                   `^gpu\.(product|model)|^mig-`, // a profile is part of the name
		"nvmlDeviceGetMemoryInfo":             `memory$`,
		"nvmlDeviceGetCudaComputeCapability":  `compute`,
		"nvmlDeviceGetArchitecture":           `^$`, // the capability tells as well
		"nvmlDeviceGetPciInfo_v3":             `^vgpu`,
		"nvmlDeviceGetGpuFabricInfoV":         `^gpu\.clique`,
		"nvmlDeviceGetAttributes_v2":          `multiprocessors|slices|engines`,
		"nvmlDeviceGetMigMode":                `^mig-|mig-|^mig\.capable`,
		"nvmlDeviceGetMaxMigDeviceCount":      `mig-`,
		"nvmlDeviceGetMigDeviceHandleByIndex": `mig-`,
		"nvmlDeviceGetMinorNumber":            `^$`,
	} {
		for _, code := range []int{3, 4, 15, 999} { // not supported, no permission, GPU is lost, unknown
			t.Run(fmt.Sprintf("%s %d", call, code), func(t *testing.T) {
				t.Parallel()
				if call == "nvmlDeviceGetMigMode" && code == 3 {
					t.Skip("it then means that the card cannot do MIG")
				}
				config := kinds(t)
				config["fail"] = map[string]any{call: code}
				inv := discover(t, config)
				require.Len(t, inv.GPUs, 8)
				got := features.Labels(&inv, &sharing, "m")
				requireValid(t, got)
				want := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(key string) bool {
					return regexp.MustCompile(omitted).MatchString(strings.TrimPrefix(key, features.Prefix))
				})
				require.Equal(t, want, slices.Sorted(maps.Keys(got)))
			})
		}
	}
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	for compute, want := range map[string]string{
		"1.3": "tesla", "2.0": "fermi", "3.5": "kepler", "5.2": "maxwell", "6.1": "pascal", "7.0": "volta", "7.2": "volta", "7.5": "turing",
		"8.0": "ampere", "8.6": "ampere", "8.9": "ada-lovelace", "9.0": "hopper", "10.3": "blackwell", "12.0": "blackwell", "13.0": "rubin",
		"4.0": "undefined", "99.0": "undefined", "": "",
	} {
		inv := node("x")
		inv.GPUs[0].ComputeCapability = compute
		require.Equal(t, want, get(features.Labels(&inv, &features.Sharing{}, ""), "gpu.family"), compute)
	}
	inv := node("x")
	inv.GPUs[0].ComputeCapability, inv.GPUs[0].Architecture = "11.0", "blackwell"
	require.Equal(t, "blackwell", get(features.Labels(&inv, &features.Sharing{}, ""), "gpu.family"))
}

func TestModeFollowsThePCIClass(t *testing.T) {
	t.Parallel()
	for want, classes := range map[string][]string{
		"graphics": {"0x030000", "0x030000"}, "compute": {"0x030200", ""}, "unknown": {"0x030200", "0x030000"},
	} {
		inv := node("x", "x")
		inv.GPUs[0].PCIClass, inv.GPUs[1].PCIClass = classes[0], classes[1]
		require.Equal(t, want, get(features.Labels(&inv, &features.Sharing{}, ""), "gpu.mode"))
	}
	inv := node("x")
	for _, class := range []string{"", "0x120000"} {
		inv.GPUs[0].PCIClass = class
		require.Equal(t, "unknown", get(features.Labels(&inv, &features.Sharing{}, ""), "gpu.mode"))
	}
}

func TestACliqueIsOneThatAllCardsAgreeOn(t *testing.T) {
	t.Parallel()
	inv := node("x", "x", "x")
	on := func(cluster string, clique uint32) *device.Fabric {
		return &device.Fabric{ClusterUUID: cluster, CliqueID: clique}
	}
	clique := func() string { return get(features.Labels(&inv, &features.Sharing{}, ""), "gpu.clique") }
	require.Empty(t, clique())
	inv.GPUs[0].Fabric = on("00000000-0000-0000-0000-000000000000", 0)
	require.Empty(t, clique(), "a fabric within the node")
	inv.GPUs[1].Fabric = on("0badc0de-0001-4000-8000-0000000000ff", 7)
	require.Equal(t, "0badc0de-0001-4000-8000-0000000000ff.7", clique())
	inv.GPUs[2].Fabric = on("0badc0de-0001-4000-8000-0000000000ff", 8)
	require.Empty(t, clique())
}

func TestAVirtualGPUNamesItsHostsDriver(t *testing.T) {
	t.Parallel()
	inv := node("NVIDIA A40-8Q", "NVIDIA A40-8Q")
	inv.GPUs[0].VGPU = nil
	inv.GPUs[1].VGPU = &device.VGPU{Present: true, HostDriverVersion: "535.161.05", HostDriverBranch: "r538_10"}
	got := features.Labels(&inv, &features.Sharing{}, "")
	require.Equal(t, []string{"true", "535.161.05", "r538_10"}, []string{
		get(got, "vgpu.present"), get(got, "vgpu.host-driver-version"), get(got, "vgpu.host-driver-branch"),
	})
}

func TestReplicasAreWhatEveryCardHas(t *testing.T) {
	t.Parallel()
	inv := node("Tesla T4", "Tesla T4", "NVIDIA A100")
	sharing := timeSlicing(4)
	sharing.ReplicasOf = map[string]int{"GPU-1": 2, "GPU-2": 8}
	got := features.Labels(&inv, &sharing, "")
	require.Equal(t, "2", get(got, "gpu.replicas"))
	require.Equal(t, "2", get(got, "gpu.model.Tesla-T4.replicas"))
	require.Equal(t, "8", get(got, "gpu.model.NVIDIA-A100.replicas"))
	require.Equal(t, "Tesla-T4-SHARED", get(got, "gpu.product"))
	inv.GPUs[2].MIGEnabled = true
	inv.GPUs[2].MIGDevices = []device.MIGDevice{{UUID: "MIG-0", Profile: "1g.5gb", Health: healthy()}, {UUID: "MIG-1", Profile: "1g.5gb"}}
	sharing.ReplicasOf["MIG-0"], sharing.ReplicasOf["MIG-1"] = 5, 3
	sharing.MIGStrategy = resources.MIGMixed
	got = features.Labels(&inv, &sharing, "")
	require.Equal(t, []string{"3", "1"}, []string{get(got, "mig-1g.5gb.replicas"), get(got, "mig-1g.5gb.count")})
	sharing.Strategy = ""
	require.Equal(t, "1", get(features.Labels(&inv, &sharing, ""), "gpu.replicas"))
}

func TestMPSIsCapableOnlyWhereItCanBe(t *testing.T) {
	t.Parallel()
	inv := node("x")
	sharing := features.Sharing{Strategy: resources.MPS, MPSConfigured: true}
	require.Equal(t, "true", get(features.Labels(&inv, &sharing, ""), "mps.capable"))
	inv.GPUs[0].MIGEnabled = true
	require.Equal(t, "false", get(features.Labels(&inv, &sharing, ""), "mps.capable"))
}
