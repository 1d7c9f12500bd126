package fakeroot_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
)

func TestARealLoaderOpensTheLibrary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lib := filepath.Join(dir, "libcuda.so.535.1")
	require.NoError(t, os.WriteFile(lib, fakeroot.Library("libcuda.so.1", false), 0o644))
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import ctypes,sys; ctypes.CDLL(sys.argv[1])", lib).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.CommandContext(t.Context(), "ldconfig", "-N", "-n", "-v", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "libcuda.so.1 -> libcuda.so.535.1")
}

func TestTheSONAMEIsRead(t *testing.T) {
	t.Parallel()
	for _, is32Bit := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "lib")
		require.NoError(t, os.WriteFile(file, fakeroot.Library("libx.so.1", is32Bit), 0o644))
		f, err := elf.Open(file)
		require.NoError(t, err)
		defer f.Close()
		names, err := f.DynString(elf.DT_SONAME)
		require.NoError(t, err)
		require.Equal(t, []string{"libx.so.1"}, names)
		require.Equal(t, is32Bit, f.Class == elf.ELFCLASS32)
	}
}
