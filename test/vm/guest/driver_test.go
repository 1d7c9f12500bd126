//go:build e2e

package guest

import (
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/test/harness"
)

// notLoaded is the reason of a driver that is installed and not loaded.
const notLoaded = "the NVIDIA kernel module is not loaded"

func driverAbsent(t guest) {
	saying(t.T, notLoaded)
	refused(t, 0)
	holds(t.T, start(t.T, "plain").look())
}

// refused requires that a container with a card is not started. Its name does not
// resolve, as while nri-gpu is away; why, the device plugin says, to the kubelet
// too (podWaits).
func refused(t guest, n int) {
	t.Helper()
	_, err := create(t.Context(), t.T, "refused", card(n))
	require.Error(t, err)
	t.Log("refused:", err)
	require.ErrorContains(t, err, uuid(n))
}

func driverLoadedLate(t guest) {
	before := processes(t.T)
	loadDriver(t.T)
	served(t.T, oldDriver)
	holds(t.T, start(t.T, "late", card(0)).look(), 0)
	require.Equal(t, before, processes(t.T))
}

// libraryUpgraded is what a package upgrade does: the files are those of the new
// driver, and the module that runs is the old one until it is loaded again.
func libraryUpgraded(t guest) {
	installDriver(t.T, newDriver)
	saying(t.T, "is of another version than the loaded kernel module")
	refused(t, 4)
}

func driverUnloaded(t guest) {
	unloadDriver(t.T)
	refused(t, 4)
	pod, _ := running(t.T)
	require.Equal(t, opens("ENXIO", podCards(t.T)), openings(look(t.T, pod)), "the pod that runs has its card, and no driver behind it")
}

// uvmMajor is another one than the kernel would choose, as a module may get
// when it is loaded again.
const uvmMajor = "uvm_major=120"

func driverUpgraded(t guest) {
	before := processes(t.T)
	loadDriver(t.T, uvmMajor)
	served(t.T, newDriver)
	c := start(t.T, "upgraded", card(4))
	holds(t.T, c.look(), 4)
	files, err := harness.Exec(t.Context(), c.id, "/bin/busybox", "ls", filepath.Dir(filepath.Dir(libraries)))
	require.NoError(t, err)
	require.Contains(t, files, "libcuda.so."+newDriver)
	require.NotContains(t, files, oldDriver)
	pod, _ := running(t.T)
	require.Equal(t, opens("ok", podCards(t.T)), openings(look(t.T, pod)), "the pod that ran all the time opens its card again")
	require.Equal(t, before, processes(t.T))
}

func migDevices(t guest) {
	before := processes(t.T)
	unloadDriver(t.T)
	installDriver(t.T, newDriver,
		map[string]any{"uuid": "MIG-00000000-0000-5000-8000-000000000001", "profile": "3g.20gb", "gi": 1, "ci": 0, "memory": 1 << 34},
		map[string]any{"uuid": "MIG-00000000-0000-5000-8000-000000000005", "profile": "2g.10gb", "gi": 5, "ci": 0, "memory": 1 << 33})
	loadDriver(t.T, "mig=2:1:0,2:5:0")
	served(t.T, newDriver)
	r := start(t.T, "mig", "nri-gpu.io/gpu=MIG-00000000-0000-5000-8000-000000000005").look()
	caps := map[string]string{}
	for _, n := range r.Nodes {
		caps[n.Path] = n.Open
	}
	require.Equal(t, "ok", caps["/dev/nvidia2"], r.Nodes)
	// gi 5 of card 2 is 3 + 2×135 + 5×9, and its compute instance the one after.
	require.Contains(t, caps, "/dev/nvidia-caps/nvidia-cap318")
	require.Contains(t, caps, "/dev/nvidia-caps/nvidia-cap319")
	require.NotContains(t, caps, "/dev/nvidia-caps/nvidia-cap282", "that is the other instance")
	require.Equal(t, before, processes(t.T))

	unloadDriver(t.T)
	installDriver(t.T, newDriver)
	loadDriver(t.T)
	served(t.T, newDriver)
}
