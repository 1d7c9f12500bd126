package mps

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

func TestLimitsOfMPSAreExplained(t *testing.T) {
	t.Parallel()
	with := func(change func(*Resource), uuids ...string) Resource {
		r := gpus(gpu, 4, uuids...)
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		r    Resource
		want string // empty: fine
	}{
		"48 replicas":          {gpus(gpu, 48, "GPU-0"), ""},
		"49 replicas":          {gpus(gpu, 49, "GPU-0"), "GPU-0 has 49 replicas; MPS serves at most 48 clients of a card, so ask for no more"},
		"16 before Volta":      {with(func(r *Resource) { r.Devices[0].ComputeCapability, r.Devices[0].Replicas = "6.1", 16 }, "GPU-0"), ""},
		"17 before Volta":      {with(func(r *Resource) { r.Devices[0].ComputeCapability, r.Devices[0].Replicas = "6.1", 17 }, "GPU-0"), "at most 16 clients of a card below compute capability 7.0"},
		"48 on Volta":          {with(func(r *Resource) { r.Devices[0].ComputeCapability, r.Devices[0].Replicas = "7.0", 48 }, "GPU-0"), ""},
		"48 on 10.0":           {with(func(r *Resource) { r.Devices[0].ComputeCapability, r.Devices[0].Replicas = "10.0", 48 }, "GPU-0"), ""},
		"capability not known": {with(func(r *Resource) { r.Devices[0].ComputeCapability = "" }, "GPU-0"), ""},
		"a MIG device":         {gpus(gpu, 2, "MIG-0"), "MIG-0 is in MIG mode or a MIG device, which MPS does not share"},
		"a card in MIG mode":   {with(func(r *Resource) { r.Devices[0].MIG = true }, "GPU-0"), "GPU-0 is in MIG mode"},
		"no replicas":          {gpus(gpu, 0, "GPU-0"), "1 is the least"},
		"no cards":             {gpus(gpu, 2), `resource "nvidia.com/gpu" has no card`},
		"unequal replicas":     {with(func(r *Resource) { r.Devices[1].Replicas = 2 }, "GPU-0", "GPU-1"), "GPU-1 has 2 replicas and GPU-0 has 4"},
		"generations apart":    {with(func(r *Resource) { r.Devices[1].ComputeCapability = "6.0" }, "GPU-0", "GPU-1"), "GPU-1 is of compute capability 6.0 and GPU-0 of 8.0"},
		"two cards":            {gpus(gpu, 2, "GPU-0", "GPU-1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault := faults([]Resource{test.r})[gpu]
			if test.want == "" {
				require.NoError(t, fault)
			} else {
				require.ErrorContains(t, fault, test.want)
			}
		})
	}
}

func TestAFaultyResourceIsReportedAndCostsItself(t *testing.T) {
	t.Parallel()
	b := newBench(t).run(gpus("nvidia.com/a", 2, "GPU-0"), gpus("nvidia.com/b", 2, "GPU-1", "GPU-0"), gpus("nvidia.com/c", 49, "GPU-2"))
	b.ready("nvidia.com/a")
	status := b.wait("nvidia.com/b", "the reason", func(s Status) bool { return s.Reason != "" })
	require.Equal(t, `GPU-0 is shared by MPS under "nvidia.com/a" already, and one daemon at a time can have a card; offer it under one resource`, status.Reason)
	status, _ = b.m.Status("nvidia.com/c")
	require.Contains(t, status.Reason, "at most 48 clients")
	// The fault is mended.
	b.m.Set(b.programs(), []Resource{gpus("nvidia.com/b", 2, "GPU-1", "GPU-0")})
	b.ready("nvidia.com/b")
}

func TestReplicasOfAPlanAreServed(t *testing.T) {
	t.Parallel()
	inv := device.Inventory{GPUs: []device.GPU{
		{UUID: "GPU-0", MemoryBytes: 16 << 30, ComputeCapability: "8.0"},
		{UUID: "GPU-1", Index: 1, MemoryBytes: 8 << 30, ComputeCapability: "8.6"},
		{UUID: "GPU-2", Index: 2},
	}}
	plan := resources.Make(&inv, &resources.Config{Whole: gpu, MIG: resources.MIGNone, Shares: []resources.Share{
		{Resource: gpu, Strategy: resources.MPS, Replicas: 3, Devices: resources.Selector{Count: 2}},
	}})
	require.Len(t, plan.Resources, 1)
	r := Of(&plan.Resources[0])
	require.Equal(t, Resource{Name: gpu, Devices: []Device{
		{UUID: "GPU-0", MemoryBytes: 16 << 30, ComputeCapability: "8.0", Replicas: 3},
		{UUID: "GPU-1", MemoryBytes: 8 << 30, ComputeCapability: "8.6", Replicas: 3},
	}}, r, "a card that is offered once is no client of a daemon")
	require.Equal(t, 33, r.threads())
	require.EqualValues(t, 5461, r.Devices[0].memoryMiB())
	require.EqualValues(t, 2730, r.Devices[1].memoryMiB())
}

func TestALogsLastLineOfNote(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"[2026-12-01 13:47:00.000 Control  4402] Server 4438 exited with status 1": "Server 4438 exited with status 1",
		"[2026-12-01 13:46:59.979 Control  4402] UI closed":                        "",
		"[2026-12-01 13:46:59.979 Control  4402] Cmd:get_server_list":              "",
		"[2026-12-01 13:46:59.979 Control  4402] 25.0":                             "",
		"Cannot find MPS control daemon process":                                   "Cannot find MPS control daemon process",
	} {
		require.Equal(t, want, ofNote(line), line)
	}
}
