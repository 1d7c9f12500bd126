//go:build e2e

package guest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// TestBoot1 goes from a node without a driver to one whose driver was upgraded.
func TestBoot1(t *testing.T) {
	scenarios(t, []scenario{
		{"ANodeWithSystemdAndCgroup2", nodeIsReal},
		{"InstalledTheDaemonsRunAsServices", install},
		{"WithoutADriverAContainerIsRefused", driverAbsent},
		{"ADriverThatIsLoadedLateIsServedWithoutARestart", driverLoadedLate},
		{"AContainerOpensItsCardAndNoOther", oneCard},
	})
}

func nodeIsReal(t *testing.T) {
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs("/sys/fs/cgroup", &st))
	require.EqualValues(t, unix.CGROUP2_SUPER_MAGIC, st.Type)
	comm, err := os.ReadFile("/proc/1/comm")
	require.NoError(t, err)
	require.Equal(t, "systemd\n", string(comm))
	eventually(t, "containerd answers", func(ctx context.Context) error {
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

func install(t *testing.T) {
	installDriver(t, oldDriver)
	t.Log(sh(t, at(layout.Checkout, "hack", "install.sh")))
	for _, u := range []string{nriUnit, pluginUnit} {
		require.Equal(t, "enabled", sh(t, "systemctl", "is-enabled", u))
	}
	eventually(t, "the daemons answer", func(ctx context.Context) error {
		_, err := harness.Body(ctx, "http://"+harness.NRIAddress+"/healthz")
		if err == nil {
			_, err = harness.Body(ctx, "http://"+harness.PluginAddress+"/healthz")
		}
		return err
	})
	processes(t)
}

// reason of a driver that is installed and not loaded.
const notLoaded = "the NVIDIA kernel module is not loaded"

func driverAbsent(t *testing.T) {
	saying(t, notLoaded)
	_, err := create(t, "too-early", card(0))
	require.Error(t, err)
	t.Log("refused:", err)
	require.True(t, strings.Contains(err.Error(), uuid(0)), err)
	holds(t, start(t, "plain").look())
}

func driverLoadedLate(t *testing.T) {
	before := processes(t)
	loadDriver(t)
	served(t, oldDriver)
	holds(t, start(t, "late", card(0)).look(), 0)
	require.Equal(t, before, processes(t))
}

func oneCard(t *testing.T) {
	holds(t, start(t, "one", card(3)).look(), 3)
	holds(t, start(t, "two", card(1), card(6)).look(), 1, 6)
	holds(t, start(t, "none").look())
}
