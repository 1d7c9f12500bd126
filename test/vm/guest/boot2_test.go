//go:build e2e

package guest

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// TestBoot2 finds the node as it comes up after a reboot, without anybody having
// touched it.
func TestBoot2(t *testing.T) {
	scenarios(t, []scenario{
		{"TheDriverIsServedAgain", func(t guest) {
			served(t.T, newDriver)
			registered(t.T)
		}},
		{"ThePodHasTheSameCard", sameCard},
		{"UninstalledThePodKeepsItsCard", uninstall},
	})
}

func sameCard(t guest) {
	var before []string
	data, err := os.ReadFile(remembered)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &before))
	replayed := admitted(t.T)
	id, devices := running(t.T)
	if replayed {
		require.Equal(t, before, devices)
		// The kubelet did not ask again: it has the answer from before the reboot.
		log := sh(t.T, "journalctl", "-b", "--no-pager", "-o", "cat", "-u", pluginUnit)
		require.Contains(t, log, "the kubelet follows the device list")
		require.NotContains(t, log, "msg=allocated")
	}
	holds(t.T, look(t.T, id), podCards(t.T)...)
}

func uninstall(t guest) {
	id, _ := running(t.T)
	t.Log(sh(t.T, at(layout.Checkout, "hack", "uninstall.sh")))
	for _, dir := range []string{"/usr/local/lib/nri-gpu", "/run/nri-gpu", "/var/lib/nri-gpu", "/run/cdi/nri-gpu.io-gpu.json", "/etc/systemd/system/nri-gpu.service"} {
		require.NoFileExists(t, dir)
		require.NoDirExists(t, dir)
	}
	reload(t)
	holds(t.T, look(t.T, id), podCards(t.T)...)
}
