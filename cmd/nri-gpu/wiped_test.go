package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// A carrier that was cut short kept a device plugin that started later waiting
// for ever: nri-gpu wrote it when it connected, and never again.
func TestFilesThatAreLostOrCutShortAreWrittenAgain(t *testing.T) {
	b := newBench(t)
	b.publish()
	r := b.runtime("v2.4.2")
	defer r.Stop()
	b.start()
	b.serving(true)
	_, err := r.Create(t.Context(), pod(), container("c1", gpu0))
	require.NoError(t, err)
	recorded := func() bool { text, ok := b.record("c1"); return ok && strings.Contains(text, gpu0) }
	require.Eventually(t, recorded, 10*time.Second, 5*time.Millisecond)

	require.NoError(t, os.Truncate(b.cfg.Data().Carrier(), 10))
	require.NoError(t, os.Truncate(b.cfg.State().Container("c1"), 10))
	require.Eventually(t, func() bool {
		carrier, err := cdi.ReadCarrier(b.cfg.Data().Carrier())
		return err == nil && carrier == cdi.CarrierCDI && recorded()
	}, 10*time.Second, 5*time.Millisecond)

	require.NoError(t, os.RemoveAll(b.cfg.StateDir))
	require.Eventually(t, func() bool { return recorded() && !b.guard() }, 10*time.Second, 5*time.Millisecond, "no inventory, no guard")
	b.publish() // the device plugin does so, too
	b.serving(true)
	require.True(t, b.guard())
	_, err = r.Create(t.Context(), pod(), container("c2", gpu0))
	require.NoError(t, err)
	require.NoError(t, r.StopContainer(t.Context(), pod(), container("c1")))
	require.Eventually(t, func() bool { _, ok := b.record("c1"); return !ok }, 10*time.Second, 5*time.Millisecond, "what has ended is not repaired")
	require.NoError(t, b.stop())
}
