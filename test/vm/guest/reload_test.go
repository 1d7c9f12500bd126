//go:build e2e

package guest

import (
	"context"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// reload has systemd set up the device rules of all units anew, those of running
// containers too.
func reload(t guest) {
	t.Helper()
	sh(t.T, "systemctl", "daemon-reload")
}

func keepsItsCard(t guest) {
	c := start(t.T, "kept", card(2))
	holds(t.T, c.look(), 2)
	reload(t)
	holds(t.T, c.look(), 2)
	c.update(200)
	holds(t.T, c.look(), 2)
	reload(t)
	holds(t.T, c.look(), 2)
}

// losesItsCard shows what the links are for: a container that was created without
// them loses its card, and nothing gives it back, since runc told systemd only of
// nodes that had a link. When the daemon is back so are they, for the next one.
func losesItsCard(t guest) {
	sh(t.T, "systemctl", "stop", pluginUnit)
	links, err := filepath.Glob("/dev/char/195:*")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(links), 8)
	for _, l := range links {
		require.NoError(t, os.Remove(l))
	}
	c := start(t.T, "lost", card(2))
	holds(t.T, c.look(), 2)
	reload(t)
	require.Equal(t, opens("EPERM", nil), openings(c.look()))

	sh(t.T, "systemctl", "start", pluginUnit)
	eventually(t.T, "the links are there again", func(context.Context) error {
		for _, l := range links {
			if _, err := os.Stat(l); err != nil {
				return err
			}
		}
		return nil
	})
	next := start(t.T, "next", card(2))
	reload(t)
	holds(t.T, next.look(), 2)
}
