package record_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/nri-gpu/nri-gpu/internal/record"
	"github.com/nri-gpu/nri-gpu/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*record.Writer, state.Dir, func()) {
	t.Helper()
	dir := state.Dir(t.TempDir())
	w := record.New(dir, logrus.StandardLogger())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	return w, dir, func() { cancel(); wg.Wait() }
}

func read(t *testing.T, dir state.Dir, id string) record.Container {
	t.Helper()
	data, err := os.ReadFile(dir.Container(id))
	require.NoError(t, err)
	var c record.Container
	require.NoError(t, json.Unmarshal(data, &c))
	return c
}

func TestRecordsFollowTheContainers(t *testing.T) {
	t.Parallel()
	w, dir, stop := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	full := record.Container{ID: "a", Pod: "p", Devices: []string{"nri-gpu.io/gpu=GPU-1"}, Carrier: "cdi", Injected: time.Now().UTC().Round(0)}
	w.Put(full)
	w.Put(record.Container{ID: "gone"})
	w.Put(record.Container{ID: "../escape"})
	w.Reset([]record.Container{{ID: "a", Pod: "p"}, {ID: "b", Pod: "q"}})
	require.NoError(t, w.Flush(ctx))
	require.Equal(t, full, read(t, dir, "a"), "what was known stays")
	require.Equal(t, "q", read(t, dir, "b").Pod)
	entries, err := os.ReadDir(dir.Containers())
	require.NoError(t, err)
	require.Len(t, entries, 2)

	w.Remove("a")
	w.Remove("never there")
	stop()
	entries, err = os.ReadDir(dir.Containers())
	require.NoError(t, err)
	require.Len(t, entries, 1, "what was queued is written before Run returns")
}
