package features_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

func TestOneProfileOnTwoModelsIsDescribedByTheLarger(t *testing.T) {
	t.Parallel()
	inv := node("A", "B")
	for i := range inv.GPUs {
		inv.GPUs[i].MIGEnabled = true
		for j := range i + 1 {
			inv.GPUs[i].MIGDevices = append(inv.GPUs[i].MIGDevices, device.MIGDevice{
				UUID: fmt.Sprintf("MIG-%d-%d", i, j), Profile: "1g.10gb", Health: healthy(), MemoryBytes: uint64(i+1) << 30,
			})
		}
	}
	got := features.Labels(&inv, &features.Sharing{MIGStrategy: resources.MIGMixed}, "")
	require.Equal(t, []string{"B-MIG-1g.10gb", "2", "2048", "1", "2"}, []string{
		get(got, "mig-1g.10gb.product"), get(got, "mig-1g.10gb.count"), get(got, "mig-1g.10gb.memory"),
		get(got, "gpu.model.A.mig-1g.10gb.count"), get(got, "gpu.model.B.mig-1g.10gb.count"),
	})
	got = features.Labels(&inv, &features.Sharing{MIGStrategy: resources.MIGSingle}, "")
	require.Equal(t, "A-MIG-INVALID", get(got, "gpu.product"))
}

func TestALostCardDoesNotMakeALayoutInvalid(t *testing.T) {
	t.Parallel()
	inv := node("A", "A")
	inv.GPUs[0].MIGEnabled = true
	inv.GPUs[0].MIGDevices = []device.MIGDevice{{UUID: "MIG-0", Profile: "7g.40gb", Health: healthy()}}
	inv.GPUs[1].Health = device.Health{Reason: "lost"}
	got := features.Labels(&inv, &features.Sharing{MIGStrategy: resources.MIGSingle}, "")
	require.Equal(t, "A-MIG-7g.40gb", get(got, "gpu.product"))
	require.Equal(t, "1", get(got, "gpu.count"))
	require.Empty(t, get(got, "gpu.memory"), "the card's is not the device's")
}

// partitioned is a node whose two cards have a MIG device each.
func partitioned() device.Inventory {
	inv := node("A", "A")
	for i := range inv.GPUs {
		inv.GPUs[i].MIGEnabled = true
		inv.GPUs[i].MIGDevices = []device.MIGDevice{{
			UUID: fmt.Sprintf("MIG-%d", i), Profile: "7g.40gb", Health: healthy(), Attributes: &device.MIGAttributes{Multiprocessors: 98},
		}}
	}
	return inv
}

func TestAMIGDeviceOfALostCardDoesNotCount(t *testing.T) {
	t.Parallel()
	inv := partitioned()
	inv.GPUs[1].Health = device.Health{Reason: "lost"}
	for strategy, key := range map[resources.MIGStrategy]string{resources.MIGMixed: "mig-7g.40gb.count", resources.MIGSingle: "gpu.count"} {
		require.Equal(t, "1", get(features.Labels(&inv, &features.Sharing{MIGStrategy: strategy}, ""), key))
	}
}

func TestTheStrategySingleNeedsMIGDevicesThatAreAlike(t *testing.T) {
	t.Parallel()
	single := &features.Sharing{MIGStrategy: resources.MIGSingle}
	for name, c := range map[string]struct {
		change func(*device.Inventory)
		want   string
	}{
		"alike":              {func(*device.Inventory) {}, "A-MIG-7g.40gb"},
		"one is unknown":     {func(inv *device.Inventory) { inv.GPUs[0].MIGDevices[0].Attributes = nil }, "A-MIG-7g.40gb"},
		"other attributes":   {func(inv *device.Inventory) { inv.GPUs[1].MIGDevices[0].Attributes.Multiprocessors = 97 }, "A-MIG-INVALID"},
		"another profile":    {func(inv *device.Inventory) { inv.GPUs[1].MIGDevices[0].Profile = "7g.80gb" }, "A-MIG-INVALID"},
		"a card without any": {func(inv *device.Inventory) { inv.GPUs[1].MIGDevices = nil }, "A-MIG-INVALID"},
		"a whole card":       {func(inv *device.Inventory) { inv.GPUs[1].MIGEnabled, inv.GPUs[1].MIGDevices = false, nil }, "A-MIG-INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inv := partitioned()
			c.change(&inv)
			require.Equal(t, c.want, get(features.Labels(&inv, single, ""), "gpu.product"))
		})
	}
}
