package nvml_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// next waits for one XID.
func (m *machine) next(t *testing.T) device.XID {
	t.Helper()
	select {
	case x := <-m.XIDs():
		return x
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no XID came")
		return device.XID{}
	}
}

func xid(seq int, gpu any, number int) map[string]any {
	return map[string]any{"seq": seq, "gpu": gpu, "xid": number}
}

func TestXIDsAreToldWithTheirInstance(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h100x8-mig")
	uuid := m.config.Device(0)["uuid"]
	m.config["xids"] = []any{xid(1, uuid, 31)} // of before we looked
	m.write(t)
	inv := m.until(t, "cards that report", func(inv device.Inventory) bool { return len(inv.GPUs) == 8 && inv.GPUs[0].Events })
	require.Empty(t, inv.Driver.Deaf)

	inMIG := xid(3, uuid, 95)
	inMIG["gi"], inMIG["ci"] = 2, 0
	m.config["xids"] = []any{xid(1, uuid, 31), xid(2, uuid, 79), inMIG}
	m.write(t)
	require.Equal(t, device.XID{GPU: inv.GPUs[0].UUID, Number: 79, GPUInstance: -1, ComputeInstance: -1}, m.next(t))
	require.Equal(t, device.XID{GPU: inv.GPUs[0].UUID, Number: 95, GPUInstance: 2, ComputeInstance: 0}, m.next(t))
	m.until(t, "snapshots go on", func(inv device.Inventory) bool { return len(inv.GPUs) == 8 })
}

// A card whose driver supports no events was unhealthy from the start with
// another plugin.
func TestACardWithoutEventsIsHealthy(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	m.config.Device(1)["events"] = 0
	m.config.Device(2)["fail"] = map[string]any{"nvmlDeviceRegisterEvents": 3}
	m.write(t)
	inv := m.Discover(t.Context())
	require.True(t, inv.GPUs[0].Events)
	for _, g := range inv.GPUs[1:3] {
		require.False(t, g.Events)
		require.True(t, g.Health.Healthy)
	}
	require.Empty(t, inv.Driver.Deaf)
}

// A failing wait made every card unhealthy and the log endless with another
// plugin.
func TestAWaitThatFailsIsAReasonAndNoFaultOfACard(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	m.config["fail"] = map[string]any{"nvmlEventSetWait_v2": 999}
	m.write(t)
	inv := m.until(t, "deaf", func(inv device.Inventory) bool { return inv.Driver.Deaf != "" })
	require.Contains(t, inv.Driver.Deaf, "nvmlEventSetWait")
	for _, g := range inv.GPUs {
		require.True(t, g.Health.Healthy)
	}
	delete(m.config, "fail")
	m.write(t)
	m.until(t, "hearing again", func(inv device.Inventory) bool { return inv.Driver.Deaf == "" && inv.GPUs[0].Events })
	m.config["xids"] = []any{xid(1, m.config.Device(0)["uuid"], 79)}
	m.write(t)
	require.EqualValues(t, 79, m.next(t).Number)
}

func TestWhatTheDriverSaysOfACardIsItsHealth(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "a100x8")
	for i, set := range []map[string]any{
		{"recovery_action": 0, "ecc_uncorrected": 7, "remap_failure": 0, "fabric": map[string]any{"state": 3}},
		{"recovery_action": 1},
		{"recovery_action": 2},
		{"recovery_action": 3},
		{"recovery_action": 4},
		{"remap_failure": 1},
		{"fabric": map[string]any{"state": 2}},
		{"fabric": map[string]any{"state": 3, "status": 999}},
	} {
		for k, v := range set {
			m.config.Device(i)[k] = v
		}
	}
	m.write(t)
	inv := m.Discover(t.Context())
	require.EqualValues(t, 7, inv.GPUs[0].ECCUncorrected)
	for i, want := range []string{
		"", "asks for a reset", "asks for a reboot", "", "asks for a reset", "could not be remapped", "not registered with the NVLink fabric", "registration with the NVLink fabric failed",
	} {
		require.Contains(t, inv.GPUs[i].Health.Reason, want, i)
		require.Equal(t, want == "", inv.GPUs[i].Health.Healthy, i)
	}
	require.Equal(t, device.RecoveryNone, inv.GPUs[0].Recovery)
	require.Equal(t, device.RecoveryDrain, inv.GPUs[3].Recovery)
}
