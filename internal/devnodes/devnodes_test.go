package devnodes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

func tree(t *testing.T, procDevices string) roots.Roots {
	t.Helper()
	r := roots.Roots{Dev: t.TempDir(), Host: t.TempDir()}
	require.NoError(t, os.MkdirAll(r.Proc(), 0o755))
	require.NoError(t, os.WriteFile(r.Proc("devices"), []byte(procDevices), 0o644))
	return r
}

const loaded = "Character devices:\n  1 mem\n195 nvidia\n509 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n511 nvidia\n"

func inventory() device.Inventory {
	return device.Inventory{GPUs: []device.GPU{
		{Minor: 0},
		{Minor: 3, MIGEnabled: true, MIGDevices: []device.MIGDevice{{GPUInstanceMinor: 12, ComputeInstanceMinor: 13}, {GPUInstanceMinor: -1, ComputeInstanceMinor: -1}}},
		{Minor: -1},
	}}
}

func TestMissingNodesAreMadeWithTheNumbersOfTheRunningKernel(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	r := tree(t, loaded)
	res := devnodes.Ensure(r, inventory())
	require.Empty(t, res.Problems)
	require.ElementsMatch(t, []string{
		"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia3",
		"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13",
	}, res.Created)
	for node, want := range map[string][2]uint32{
		"/dev/nvidiactl": {195, 255}, "/dev/nvidia-modeset": {195, 254}, "/dev/nvidia-uvm-tools": {510, 1}, "/dev/nvidia3": {195, 3}, "/dev/nvidia-caps/nvidia-cap13": {509, 13},
	} {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(r.DevPath(node), &st))
		require.Equal(t, want, [2]uint32{unix.Major(st.Rdev), unix.Minor(st.Rdev)}, node)
	}
	target, err := os.Readlink(r.DevPath("/dev/char/195:3"))
	require.NoError(t, err)
	require.Equal(t, "../nvidia3", target)
	target, err = os.Readlink(r.DevPath("/dev/char/509:13"))
	require.NoError(t, err)
	require.Equal(t, "../nvidia-caps/nvidia-cap13", target)

	again := devnodes.Ensure(r, inventory())
	require.Empty(t, again.Created)
	require.Empty(t, again.Problems)
}

func TestANodeWhoseModuleIsNotLoadedIsNamed(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	res := devnodes.Ensure(tree(t, "Character devices:\n195 nvidia-frontend\n"), device.Inventory{GPUs: []device.GPU{{Minor: 0}}})
	require.ElementsMatch(t, []string{"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia0"}, res.Created)
	require.Len(t, res.Problems, 2)
	require.Equal(t, "/dev/nvidia-uvm", res.Problems[0].Node)
	require.Contains(t, res.Problems[0].Why, "modprobe nvidia-uvm")
}

func TestAFileInThePlaceOfANodeIsAProblemAndIsLeftAlone(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	r := tree(t, loaded)
	path := r.DevPath("/dev/nvidia0")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	res := devnodes.Ensure(r, device.Inventory{GPUs: []device.GPU{{Minor: 0}}})
	require.Len(t, res.Problems, 1)
	require.Contains(t, res.Problems[0].Why, "not a character device")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}

// A module that is loaded again may get another major, where it does not have a
// fixed one.
func TestANodeOfAnEarlierLoadIsReplacedAndARightOneIsNot(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	r := tree(t, loaded)
	require.Empty(t, devnodes.Ensure(r, inventory()).Problems)
	require.NoError(t, os.Chmod(r.DevPath("/dev/nvidia0"), 0o660))
	require.NoError(t, os.WriteFile(r.Proc("devices"), []byte("Character devices:\n195 nvidia\n507 nvidia-uvm\n"), 0o644))
	res := devnodes.Ensure(r, inventory())
	require.Equal(t, []string{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}, res.Created)
	require.Empty(t, res.Problems)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(r.DevPath("/dev/nvidia-uvm-tools"), &st))
	require.Equal(t, unix.Mkdev(507, 1), st.Rdev)
	require.EqualValues(t, 0o666, st.Mode&0o777)
	target, err := os.Readlink(r.DevPath("/dev/char/507:1"))
	require.NoError(t, err)
	require.Equal(t, "../nvidia-uvm-tools", target)
	info, err := os.Stat(r.DevPath("/dev/nvidia0"))
	require.NoError(t, err)
	require.EqualValues(t, 0o660, info.Mode().Perm(), "an administrator's mode stays")
	entries, err := os.ReadDir(r.DevPath("/dev"))
	require.NoError(t, err)
	for _, e := range entries {
		require.NotEqual(t, '.', rune(e.Name()[0]), "a draft is left: %s", e.Name())
	}
}

// requireRoot fails, and does not skip: making a node is what is tested.
func requireRoot(t *testing.T) {
	t.Helper()
	require.Zero(t, os.Geteuid(), "making device nodes needs root")
}

func FuzzParseMajors(f *testing.F) {
	f.Add(loaded)
	f.Add("195 nvidia 3\n-1 x\n99999 y\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, major := range devnodes.ParseMajors(text) {
			require.NotEmpty(t, name)
			require.Less(t, major, uint32(1<<12))
		}
	})
}
