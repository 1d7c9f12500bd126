package state_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/state"
)

func TestWriteFileReplacesAtomicallyAndLeavesNoDebris(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "spec.json")

	changed, err := state.WriteFile(path, []byte("one"), 0o644)
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = state.WriteFile(path, []byte("two"), 0o644)
	require.NoError(t, err)
	require.True(t, changed)

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "two", string(data))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestWriteFileDoesNotTouchAFileThatIsTheSame(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spec.json")
	_, err := state.WriteFile(path, []byte("one"), 0o644)
	require.NoError(t, err)
	before, err := os.Stat(path)
	require.NoError(t, err)

	changed, err := state.WriteFile(path, []byte("one"), 0o644)
	require.NoError(t, err)
	require.False(t, changed)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
}

func TestWriteFileReplacesALinkAndNotItsTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	require.NoError(t, os.WriteFile(target, []byte("one"), 0o644))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(target, link))

	changed, err := state.WriteFile(link, []byte("one"), 0o644)
	require.NoError(t, err)
	require.True(t, changed)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
}

func TestWriteFileSaysWhichFileItCouldNotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "spec.json")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "occupied"), 0o755))
	_, err := state.WriteFile(path, []byte("one"), 0o644)
	require.ErrorContains(t, err, path)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the temporary file is gone")
}
