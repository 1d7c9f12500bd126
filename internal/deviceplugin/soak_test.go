package deviceplugin

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
)

// descriptors counts the open files of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// Not parallel: it counts what the whole process has.
//
//nolint:paralleltest // see above
func TestAThousandRestartsOfTheKubeletLeaveNothingBehind(t *testing.T) {
	n := newNode(t)
	n.plugin.timing.poll = time.Second // inotify tells
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(4))
	n.run()
	k.Wait("four cards", listed(4))
	restart := func(times int) {
		for range times {
			k.Restart(modern())
			k.Wait("four cards", listed(4))
		}
	}
	restart(20) // what is made once is made
	settled := func(what func() int, most int) bool {
		deadline := time.Now().Add(10 * time.Second)
		for time.Now().Before(deadline) {
			if what() <= most {
				return true
			}
			time.Sleep(10 * time.Millisecond) // connections that were closed are let go of by others
		}
		return false
	}
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	restart(1000)
	require.True(t, settled(runtime.NumGoroutine, goroutines+5), "goroutines grew from %d to %d", goroutines, runtime.NumGoroutine())
	require.True(t, settled(func() int { return descriptors(t) }, files+5), "descriptors grew from %d to %d", files, descriptors(t))
}
