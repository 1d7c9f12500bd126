package devnodes_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

func oneCard(t *testing.T) (r roots.Roots, char string) {
	t.Helper()
	requireRoot(t)
	r = tree(t, loaded)
	require.Empty(t, devnodes.Ensure(r, device.Inventory{GPUs: []device.GPU{{Minor: 0}}}).Problems)
	return r, r.DevPath("/dev/char/195:0")
}

func TestALinkThatLeadsElsewhereIsMended(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]string{
		"nowhere": "../nvidia77", "to another device": "../nvidiactl", "to a directory": "..", "to itself": "195:0", "out of the dev root": "/dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, char := oneCard(t)
			require.NoError(t, os.Remove(char))
			require.NoError(t, os.Symlink(target, char))
			require.Empty(t, devnodes.Link(r, []string{"/dev/nvidia0"}))
			got, err := os.Readlink(char)
			require.NoError(t, err)
			require.Equal(t, "../nvidia0", got)
		})
	}
}

func TestALinkThatIsRightStaysAsItIs(t *testing.T) {
	t.Parallel()
	r, char := oneCard(t)
	absolute := r.DevPath("/dev/nvidia0")
	require.NoError(t, os.Remove(char))
	require.NoError(t, os.Symlink(absolute, char))
	require.Empty(t, devnodes.Link(r, []string{"/dev/nvidia0"}))
	got, err := os.Readlink(char)
	require.NoError(t, err)
	require.Equal(t, absolute, got)

	require.NoError(t, os.Remove(char))
	require.NoError(t, unix.Mknod(char, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 0))))
	require.Empty(t, devnodes.Link(r, []string{"/dev/nvidia0"}), "the device itself does as well")
}

func TestWhatIsNoLinkIsLeftAloneAndNamed(t *testing.T) {
	t.Parallel()
	r, char := oneCard(t)
	require.NoError(t, os.Remove(char))
	require.NoError(t, os.WriteFile(char, []byte("mine"), 0o600))
	problems := devnodes.Link(r, []string{"/dev/nvidia0", "/dev/nvidiactl"})
	require.Len(t, problems, 1)
	require.Equal(t, "/dev/nvidia0", problems[0].Node)
	require.Contains(t, problems[0].Why, char)
	require.Contains(t, problems[0].Why, "no link; remove it")
	data, err := os.ReadFile(char)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}

func TestANodeThatIsNotThereNeedsNoLink(t *testing.T) {
	t.Parallel()
	r, _ := oneCard(t)
	require.Empty(t, devnodes.Link(r, []string{"/dev/nvidia5"}))
	entries, err := os.ReadDir(r.DevPath("/dev/char"))
	require.NoError(t, err)
	for _, e := range entries {
		require.NotEqual(t, "195:5", e.Name())
	}
}
