package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What a container may get beside cards has a link too, and the link is mended
// while the daemon runs.
func TestEveryNodeThatIsInjectedHasALink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	node := b.cfg.Roots().DevPath("/dev/gdrdrv")
	require.NoError(t, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(250, 7))))
	b.start()
	b.kubelet.Wait("two cards", healthy(2))
	for _, name := range []string{"/dev/char/250:7", "/dev/char/195:0"} {
		link := b.cfg.Roots().DevPath(name)
		target, err := os.Readlink(link)
		require.NoError(t, err)
		require.NoError(t, os.Remove(link))
		require.Eventually(t, func() bool {
			again, err := os.Readlink(link)
			return err == nil && again == target
		}, 20*time.Second, 10*time.Millisecond)
	}
}
