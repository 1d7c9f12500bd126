//go:build e2e

package guest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// TestBoot1 goes from a node without a driver to one whose driver was upgraded
// under a pod.
func TestBoot1(t *testing.T) {
	scenarios(t, []scenario{
		{"ANodeWithSystemdAndCgroup2", nodeIsReal},
		{"InstalledTheDaemonsRunAsServices", install},
		{"WithoutADriverAContainerIsRefused", driverAbsent},
		{"ADriverThatIsLoadedLateIsServedWithoutARestart", driverLoadedLate},
		{"AContainerOpensItsCardAndNoOther", oneCard},
		{"AContainerKeepsItsCardOverAReloadAndAnUpdate", keepsItsCard},
		{"WithoutLinksAReloadTakesTheCard", losesItsCard},
		{"AStaticPodGetsACard", staticPod},
		{"ALibraryWithoutItsModuleIsNotServed", libraryUpgraded},
		{"AnUnloadedDriverIsNotServed", driverUnloaded},
		{"AnUpgradedDriverIsServedWithoutARestart", driverUpgraded},
		{"MIGDevicesOpenTheirCapabilities", migDevices},
		{"AKubeletThatWasAwayFindsItsPod", kubeletReturns},
		{"APodThatIsRestartedWithoutADriverWaitsForIt", podWaits},
	})
}

func nodeIsReal(t guest) {
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs("/sys/fs/cgroup", &st))
	require.EqualValues(t, unix.CGROUP2_SUPER_MAGIC, st.Type)
	comm, err := os.ReadFile("/proc/1/comm")
	require.NoError(t, err)
	require.Equal(t, "systemd\n", string(comm))
	eventually(t.T, "containerd answers", func(ctx context.Context) error {
		_, err := harness.Containers(ctx)
		return err
	})
	archives, err := filepath.Glob(at(layout.Images, "*.tar"))
	require.NoError(t, err)
	require.Len(t, archives, 2)
	for _, a := range archives {
		require.NoError(t, new(harness.World).Import(t.Context(), harness.Tools(at(layout.Tools)), a))
	}
}

func install(t guest) {
	installDriver(t.T, oldDriver)
	t.Log(sh(t.T, at(layout.Checkout, "hack", "install.sh")))
	for _, u := range []string{nriUnit, pluginUnit} {
		require.Equal(t, "enabled", sh(t.T, "systemctl", "is-enabled", u))
	}
	eventually(t.T, "the daemons answer", func(ctx context.Context) error {
		_, err := harness.Body(ctx, "http://"+harness.NRIAddress+"/healthz")
		if err == nil {
			_, err = harness.Body(ctx, "http://"+harness.PluginAddress+"/healthz")
		}
		return err
	})
	processes(t.T)
}

func oneCard(t guest) {
	holds(t.T, start(t.T, "one", card(3)).look(), 3)
	holds(t.T, start(t.T, "two", card(1), card(6)).look(), 1, 6)
	holds(t.T, start(t.T, "none").look())
}
