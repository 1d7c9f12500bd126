package hook_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/hook"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// inMountNamespace runs a test in a mount namespace of its own, which a thread
// gets and never gives back: in a process of its own. It tells whether this is
// that process.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const mark = "HOOK_TEST_MOUNT"
	if os.Getenv(mark) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), mark+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.NotContains(t, string(out), "no tests to run")
		return false
	}
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	return true
}

// driver is a file of the host's for each kind of mount, and a directory.
func driver(t *testing.T) []hookargs.Mount {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"libcuda.so.535.1", "nvidia-smi", "socket", "firmware/gsp.bin"} {
		p := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte("the driver's "+name), 0o755))
	}
	return []hookargs.Mount{
		{Path: cuda, Source: dir + "/libcuda.so.535.1", Kind: hookargs.MountRequired},
		{Path: "/usr/bin/nvidia-smi", Source: dir + "/nvidia-smi", Kind: hookargs.MountOptional},
		{Path: "/run/nvidia-persistenced/socket", Source: dir + "/socket", Kind: hookargs.MountSocket},
		{Path: "/lib/firmware/nvidia", Source: dir + "/firmware", Kind: hookargs.MountOptional},
	}
}

// newMountedImage is an image whose root is a mount, as a container's is.
func newMountedImage(t *testing.T) *image {
	t.Helper()
	i := newImage(t)
	require.NoError(t, os.Remove(i.path(cuda)))
	require.NoError(t, unix.Mount(i.root, i.root, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(i.root, unix.MNT_DETACH)) })
	return i
}

func (i *image) applyMounts(mounts ...hookargs.Mount) error {
	i.warn = nil
	a := args()
	a.Mounts = mounts
	return hook.Apply(i.root, a, i.warned)
}

// read returns a file as the container sees it.
func (i *image) read(p string) string {
	i.t.Helper()
	root, err := unix.Open(i.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(i.t, err)
	defer unix.Close(root)
	fd, err := unix.Openat2(root, p, &unix.OpenHow{Resolve: unix.RESOLVE_IN_ROOT})
	require.NoError(i.t, err)
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	data, err := io.ReadAll(f)
	require.NoError(i.t, err)
	return string(data)
}

func TestTheDriversFilesAreMounted(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	i := newMountedImage(t)
	mounts := driver(t)
	require.NoError(t, i.applyMounts(mounts...))
	require.Empty(t, i.warn)
	for p, want := range map[string]struct {
		text  string
		flags int64
	}{
		cuda:                              {"the driver's libcuda.so.535.1", unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV},
		"/usr/bin/nvidia-smi":             {"the driver's nvidia-smi", unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV},
		"/run/nvidia-persistenced/socket": {"the driver's socket", unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC},
		"/lib/firmware/nvidia/gsp.bin":    {"the driver's firmware/gsp.bin", unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV},
	} {
		data, err := os.ReadFile(i.path(p))
		require.NoError(t, err)
		require.Equal(t, want.text, string(data), p)
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(i.path(p), &st))
		require.Equal(t, want.flags, st.Flags&(unix.ST_RDONLY|unix.ST_NOSUID|unix.ST_NODEV|unix.ST_NOEXEC), p)
	}
	require.Equal(t, libDir+"/libcuda.so.1", i.cache()["libcuda.so.1"])
	require.ErrorIs(t, os.WriteFile(i.path(cuda), nil, 0o644), unix.EROFS)
}

func TestAMountOverWhatAnImageHasInItsPlace(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	for name, c := range map[string]struct {
		make func(i *image, out string)
		err  string
	}{
		"a file":                  {func(i *image, _ string) { i.file(cuda, "the image's") }, ""},
		"a link outside":          {func(i *image, out string) { i.link(cuda, out+"/host") }, ""},
		"a link climbing out":     {func(i *image, out string) { i.link(cuda, strings.Repeat("../", 20)+out+"/host") }, ""},
		"a link to nothing":       {func(i *image, _ string) { i.link(cuda, "/nowhere") }, ""},
		"a loop":                  {func(i *image, _ string) { i.link(cuda, cuda) }, ""},
		"a FIFO":                  {func(i *image, _ string) { i.fifo(cuda) }, ""},
		"a directory":             {func(i *image, _ string) { i.dir(cuda + "/x") }, "is a directory"},
		"its directory leads out": {func(i *image, out string) { i.remove(libDir); i.link(libDir, out) }, ""},
		"its directory is a file": {func(i *image, _ string) { i.remove(libDir); i.file(libDir, "") }, "not a directory"},
	} {
		i := newMountedImage(t)
		out := t.TempDir()
		require.NoError(t, os.WriteFile(out+"/host", []byte("the host's"), 0o644))
		before := tree(t, out)
		c.make(i, out)
		mounts := driver(t)
		err := i.applyMounts(mounts[0])
		require.Equal(t, before, tree(t, out), name)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, name)
			require.ErrorContains(t, err, cuda, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, "the driver's libcuda.so.535.1", i.read(cuda), name)
	}
}

func TestAVolumeInTheWayOfAMount(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	i := newMountedImage(t)
	volume := t.TempDir()
	require.NoError(t, unix.Mount(volume, i.path(libDir), "", unix.MS_BIND, ""))
	mounts := driver(t)
	require.ErrorContains(t, i.applyMounts(mounts[0]), "volume")
	mounts[0].Kind = hookargs.MountOptional
	require.NoError(t, i.applyMounts(mounts[0]))
	require.Contains(t, strings.Join(i.warn, "\n"), cuda+" is left out")
	require.Empty(t, tree(t, volume)[cuda])
	entries, err := os.ReadDir(volume)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is written into the volume")
}

func TestAHostFileThatIsGoneIsAnError(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	i := newMountedImage(t)
	for _, kind := range []hookargs.MountKind{hookargs.MountRequired, hookargs.MountOptional, hookargs.MountSocket} {
		err := i.applyMounts(hookargs.Mount{Path: cuda, Source: "/gone/libcuda.so.535.1", Kind: kind})
		require.ErrorContains(t, err, "/gone/libcuda.so.535.1")
		require.ErrorIs(t, err, unix.ENOENT)
	}
}

func TestThisKernelMountsByDescriptors(t *testing.T) {
	t.Parallel()
	require.NoError(t, hook.CanMount())
}
