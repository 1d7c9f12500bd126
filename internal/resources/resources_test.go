package resources_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

const whole = "nvidia.com/gpu"

func card(i int, model string, profiles ...string) device.GPU {
	g := device.GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Model: model, MIGEnabled: len(profiles) > 0, Health: device.Health{Healthy: true}}
	for j, p := range profiles {
		if p == "" {
			continue // in MIG mode, and empty
		}
		g.MIGDevices = append(g.MIGDevices, device.MIGDevice{UUID: fmt.Sprintf("MIG-%d-%d", i, j), Index: j, Profile: p, Health: device.Health{Healthy: true}})
	}
	return g
}

// summary lists what is offered as "resource: IDs".
func summary(p resources.Plan) []string {
	var out []string
	for _, r := range p.Resources {
		var ids []string
		for _, d := range r.Devices {
			ids = append(ids, d.ID)
		}
		out = append(out, r.Name+": "+strings.Join(ids, " "))
	}
	return out
}

func TestWhatIsOfferedUnderWhichResource(t *testing.T) {
	t.Parallel()
	a100s := []device.GPU{card(0, "NVIDIA A100-SXM4-40GB"), card(1, "NVIDIA A100-SXM4-40GB")}
	mixed := []device.GPU{card(0, "NVIDIA A100", "1g.5gb", "1g.5gb", "3g.20gb"), card(1, "NVIDIA A100"), card(2, "NVIDIA A100", "")}
	odd := []device.GPU{card(0, "NVIDIA H100", "1c.3g.40gb", "1g.10gb+me", "1g.24gb-me", "1g.12gb+me.all", "1g.12gb+gfx", "")}
	odd[0].MIGDevices = append(odd[0].MIGDevices, device.MIGDevice{UUID: "MIG-none", Profile: ""})
	for name, c := range map[string]struct {
		gpus     []device.GPU
		cfg      resources.Config
		want     []string
		problems []string // parts of them
	}{
		"whole cards": {a100s, resources.Config{MIG: resources.MIGNone}, []string{"nvidia.com/gpu: GPU-0 GPU-1"}, nil},
		"no card":     {nil, resources.Config{MIG: resources.MIGMixed}, nil, nil},
		"none: a card in MIG mode is a whole one": {
			mixed, resources.Config{MIG: resources.MIGNone}, []string{"nvidia.com/gpu: GPU-0 GPU-1 GPU-2"}, nil,
		},
		"mixed": {
			mixed,
			resources.Config{MIG: resources.MIGMixed},
			[]string{"nvidia.com/gpu: GPU-1", "nvidia.com/mig-1g.5gb: MIG-0-0 MIG-0-1", "nvidia.com/mig-3g.20gb: MIG-0-2"},
			[]string{"GPU-2 is in MIG mode and has no MIG device"},
		},
		"mixed, with unusual profiles": {
			odd,
			resources.Config{MIG: resources.MIGMixed},
			[]string{
				"nvidia.com/mig-1c.3g.40gb: MIG-0-0", "nvidia.com/mig-1g.10gb.me: MIG-0-1", "nvidia.com/mig-1g.12gb.gfx: MIG-0-4",
				"nvidia.com/mig-1g.12gb.me.all: MIG-0-3", "nvidia.com/mig-1g.24gb-me: MIG-0-2",
			},
			[]string{"MIG-none has the profile \"\""},
		},
		"single: the profile that most have": {
			mixed,
			resources.Config{MIG: resources.MIGSingle},
			[]string{"nvidia.com/gpu: MIG-0-0 MIG-0-1"},
			[]string{"GPU-1 is not in MIG mode", "GPU-2 is in MIG mode and has no MIG device", "MIG-0-2 is of profile 3g.20gb"},
		},
		"single, without MIG": {a100s, resources.Config{MIG: resources.MIGSingle}, []string{"nvidia.com/gpu: GPU-0 GPU-1"}, nil},
		"resources by model and profile": {
			mixed,
			resources.Config{
				MIG: resources.MIGMixed, GPUs: []resources.Pattern{{"*T4*", "example.com/t4"}, {"*A100*", "example.com/a100"}},
				MIGs: []resources.Pattern{{"1g.5gb", "example.com/small"}},
			},
			[]string{"example.com/a100: GPU-1", "example.com/small: MIG-0-0 MIG-0-1", "nvidia.com/mig-3g.20gb: MIG-0-2"},
			[]string{"GPU-2"},
		},
		"a pattern fits the whole name": {
			odd,
			resources.Config{MIG: resources.MIGMixed, MIGs: []resources.Pattern{{"1g.24gb", "example.com/wrong"}, {"1?.*", "example.com/wrong"}}},
			[]string{
				"nvidia.com/mig-1c.3g.40gb: MIG-0-0", "nvidia.com/mig-1g.10gb.me: MIG-0-1", "nvidia.com/mig-1g.12gb.gfx: MIG-0-4",
				"nvidia.com/mig-1g.12gb.me.all: MIG-0-3", "nvidia.com/mig-1g.24gb-me: MIG-0-2",
			},
			[]string{"MIG-none"},
		},
		"replicas": {
			a100s,
			resources.Config{MIG: resources.MIGNone, Shares: []resources.Share{{Resource: whole, Replicas: 2}}},
			[]string{"nvidia.com/gpu: GPU-0::0 GPU-0::1 GPU-1::0 GPU-1::1"},
			nil,
		},
		"replicas under another name, of one card by index": {
			a100s,
			resources.Config{MIG: resources.MIGNone, Shares: []resources.Share{
				{Resource: whole, Replicas: 2, Rename: "nvidia.com/gpu.shared", Devices: resources.Selector{List: []string{"1"}}},
			}},
			[]string{"nvidia.com/gpu: GPU-0", "nvidia.com/gpu.shared: GPU-1::0 GPU-1::1"},
			nil,
		},
		"another number for each card": {
			a100s,
			resources.Config{MIG: resources.MIGNone, Shares: []resources.Share{
				{Resource: whole, Replicas: 3, Devices: resources.Selector{List: []string{"GPU-1"}}}, {Resource: whole, Replicas: 2, Devices: resources.Selector{Count: 1}},
			}},
			[]string{"nvidia.com/gpu: GPU-1::0 GPU-1::1 GPU-1::2 GPU-0::0 GPU-0::1"},
			nil,
		},
		"another number for each model": {
			[]device.GPU{card(0, "Tesla T4"), card(1, "NVIDIA L40S")},
			resources.Config{MIG: resources.MIGNone, Shares: []resources.Share{
				{Resource: whole, Replicas: 3, Devices: resources.Selector{List: []string{"model=*L40S*"}}},
			}},
			[]string{"nvidia.com/gpu: GPU-1::0 GPU-1::1 GPU-1::2 GPU-0"},
			nil,
		},
		"a MIG device by index and by its card": {
			mixed[:1],
			resources.Config{MIG: resources.MIGMixed, Shares: []resources.Share{
				{Resource: "nvidia.com/mig-1g.5gb", Replicas: 2, Devices: resources.Selector{List: []string{"0:1"}}},
				{Resource: "nvidia.com/mig-3g.20gb", Replicas: 2, Devices: resources.Selector{List: []string{"GPU-0"}}},
			}},
			[]string{"nvidia.com/mig-1g.5gb: MIG-0-1::0 MIG-0-1::1 MIG-0-0", "nvidia.com/mig-3g.20gb: MIG-0-2::0 MIG-0-2::1"},
			nil,
		},
		"MPS does not share MIG devices": {
			mixed[:1],
			resources.Config{MIG: resources.MIGSingle, Shares: []resources.Share{{Resource: whole, Strategy: resources.MPS, Replicas: 2}}},
			[]string{"nvidia.com/gpu: "},
			[]string{"MIG-0-0 is a MIG device, which MPS does not share", "MIG-0-1", "MIG-0-2 is of profile"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Whole = whole
			require.NoError(t, c.cfg.Validate())
			inv := device.Inventory{GPUs: c.gpus}
			plan := resources.Make(&inv, &c.cfg)
			require.Equal(t, c.want, summary(plan))
			require.Len(t, plan.Problems, len(c.problems), plan.Problems)
			for i, part := range c.problems {
				require.Contains(t, plan.Problems[i], part)
			}
			for range 20 {
				require.Equal(t, plan, resources.Make(&inv, &c.cfg), "the same each time")
			}
		})
	}
}

func TestFaultsOfTheConfigurationAreToldAllAtOnce(t *testing.T) {
	t.Parallel()
	cfg := resources.Config{
		Whole: whole, MIG: "some", GPUs: []resources.Pattern{{"", "gpu"}},
		Shares: []resources.Share{
			{Resource: "kubernetes.io/gpu", Replicas: 1, Devices: resources.Selector{Count: -1}},
			{Resource: whole, Strategy: resources.MPS, Replicas: 49, Rename: "x"},
		},
	}
	err := cfg.Validate()
	for _, part := range []string{
		`MIG strategy "some"`, `the pattern for resource "gpu" is empty`, `"gpu" has no domain`, "Kubernetes' own domain", "1 replicas; 2 is the least",
		"-1 devices", `"x" has no domain`, "at most 48 clients",
	} {
		require.ErrorContains(t, err, part)
	}
}
