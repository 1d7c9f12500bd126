package nvidiaconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/nvidiaconfig"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

func base() resources.Config {
	return resources.Config{Whole: "nvidia.com/gpu", MIG: resources.MIGNone}
}

func apply(t *testing.T, text string) (resources.Config, []string, error) {
	t.Helper()
	f, err := nvidiaconfig.Decode([]byte(text))
	if err != nil {
		return resources.Config{}, nil, err
	}
	return f.Apply(base())
}

// whole is a file with every block, as NVIDIA's documentation shows them.
const whole = `version: v1
flags:
  migStrategy: mixed
  failOnInitError: true
  nvidiaDriverRoot: /run/nvidia/driver
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, cdi-cri]
    deviceIDStrategy: index
    sharedDevicesAllocationPolicy: packed
  gfd: {oneshot: false, noTimestamp: false, sleepInterval: 60s, outputFile: /etc/x, machineTypeFile: /sys/y}
resources:
  gpus:
  - {pattern: "*A100*", name: nvidia.com/a100}
  - {pattern: "*", name: gpu}
  mig:
  - {pattern: 1g.5gb, name: small}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: nvidia.com/gpu, replicas: 10}
    - {name: a100, rename: big, devices: [0, GPU-1, "0:1"], replicas: 4}
    - {name: small, devices: 2, replicas: 2}
    - {name: mig-2g.10gb, devices: all, replicas: 3}
imex: {channelIDs: [], required: false}
`

func TestNVIDIAsFileIsReadVerbatim(t *testing.T) {
	t.Parallel()
	cfg, ignored, err := apply(t, whole)
	require.NoError(t, err)
	share := func(name string, n int, rename string, s resources.Selector) resources.Share {
		return resources.Share{Resource: name, Strategy: resources.TimeSlicing, Replicas: n, Rename: rename, Devices: s, FailMultiple: true}
	}
	require.Equal(t, resources.Config{
		Whole: "nvidia.com/gpu", MIG: resources.MIGMixed, Packed: true,
		GPUs: []resources.Pattern{{Pattern: "*A100*", Resource: "nvidia.com/a100"}, {Pattern: "*", Resource: "nvidia.com/gpu"}},
		MIGs: []resources.Pattern{{Pattern: "1g.5gb", Resource: "nvidia.com/small"}},
		Shares: []resources.Share{
			share("nvidia.com/gpu", 10, "nvidia.com/gpu.shared", resources.Selector{}),
			share("nvidia.com/a100", 4, "nvidia.com/big", resources.Selector{List: []string{"0", "GPU-1", "0:1"}}),
			share("nvidia.com/small", 2, "nvidia.com/small.shared", resources.Selector{Count: 2}),
			share("nvidia.com/mig-2g.10gb", 3, "nvidia.com/mig-2g.10gb.shared", resources.Selector{}),
		},
	}, cfg)
	require.Len(t, ignored, 6)
	for i, key := range []string{"flags.failOnInitError", "flags.nvidiaDriverRoot", "flags.gfd", "flags.plugin.passDeviceSpecs", "flags.plugin.deviceListStrategy", "flags.plugin.deviceIDStrategy"} {
		require.Contains(t, ignored[i], key+": ")
	}
}

func TestMPSRefusesSeveralSharesUnlessTold(t *testing.T) {
	t.Parallel()
	cfg, _, err := apply(t, "sharing: {mps: {resources: [{name: gpu, replicas: 4}]}}")
	require.NoError(t, err)
	require.Equal(t, []resources.Share{{Resource: "nvidia.com/gpu", Strategy: resources.MPS, Replicas: 4, FailMultiple: true}}, cfg.Shares)
	cfg, _, err = apply(t, "sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 4}]}}")
	require.NoError(t, err)
	require.False(t, cfg.Shares[0].FailMultiple)
}

// NVIDIA's plugin prints such a block and refuses to read it.
func TestAnEmptyBlockIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "version: v1\n", `{"version":"v1","flags":{},"sharing":{"timeSlicing":{}}}`, "sharing:\n  timeSlicing:\n", "sharing: {timeSlicing: {}, mps: {resources: []}}",
		"flags: {plugin: {deviceListStrategy: envvar}}",
	} {
		cfg, _, err := apply(t, text)
		require.NoError(t, err, text)
		require.Empty(t, cfg.Shares, text)
	}
}

func TestWhatIsWrongIsRefusedWithItsName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"version: v2": `version "v2" is not known`,
		"sharing: {timeSlicing: {resources: [{name: gpu, replica: 3}]}}":                                            "field replica not found",
		"flags: {migstrategy: none}":                                                                                "field migstrategy not found",
		"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}":                                           "2 is the least",
		"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: none}]}}":                            `"none" is neither`,
		"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: []}]}}":                              "selects nothing",
		"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: 0}]}}":                               `"0" is neither`,
		"sharing: {timeSlicing: {resources: [{name: g, replicas: 2}]}, mps: {resources: [{name: g, replicas: 2}]}}": "exclude each other",
		"flags: {migStrategy: all}":                                                                                 `MIG strategy "all"`,
		"flags: {plugin: {sharedDevicesAllocationPolicy: random}}":                                                  `"random" is neither`,
		"flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}":                      "MPS is not possible",
		"version: v1\n---\nversion: v1\n":                                                                           "more than one YAML document",
		"resources: {gpus: [{pattern: '*', name: 'UPPER CASE'}]}":                                                   "UPPER CASE",
		"[]": "cannot unmarshal",
	} {
		_, _, err := apply(t, text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("sharing: {mps: {resources: [{name: gpu, replicas: 4, devices: all}]}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := nvidiaconfig.Decode(data)
		if err != nil {
			return
		}
		cfg, _, err := file.Apply(base())
		if err == nil {
			require.NoError(t, cfg.Validate())
		}
	})
}
