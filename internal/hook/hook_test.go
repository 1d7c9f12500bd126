package hook_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/hook"
	"github.com/nri-gpu/nri-gpu/internal/ldcache"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

const (
	libDir = "/usr/lib/x86_64-linux-gnu"
	cuda   = libDir + "/libcuda.so.535.1"
)

func args() hookargs.Args {
	return hookargs.Args{
		Libraries: []hookargs.Library{{Path: cuda, SONAME: "libcuda.so.1"}, {Path: libDir + "/libabsent.so.535.1", SONAME: "libabsent.so.1"}},
		Links: []hookargs.Link{
			{Path: libDir + "/libcuda.so", Target: "libcuda.so.1"},
			{Path: "/dev/dri/by-path/pci-0000:07:00.0-card", Target: "../card1"},
			{Path: "/dev/dri/by-path/pci-0000:08:00.0-card", Target: "../card2"},
		},
	}
}

// image is a container's root in which the driver is mounted.
type image struct {
	t    *testing.T
	root string
	warn []string
}

func newImage(t *testing.T) *image {
	t.Helper()
	i := &image{t: t, root: t.TempDir()}
	i.file("/lib64/ld-linux-x86-64.so.2", "loader")
	i.file(cuda, string(fakeroot.Library("libcuda.so.1", false)))
	i.file("/dev/dri/card1", "")
	i.dir("/etc")
	return i
}

func (i *image) path(p string) string { return filepath.Join(i.root, p) }

func (i *image) dir(p string) { i.t.Helper(); require.NoError(i.t, os.MkdirAll(i.path(p), 0o755)) }

func (i *image) file(p, content string) {
	i.t.Helper()
	i.dir(filepath.Dir(p))
	require.NoError(i.t, os.WriteFile(i.path(p), []byte(content), 0o644))
}

func (i *image) link(p, target string) {
	i.t.Helper()
	i.dir(filepath.Dir(p))
	require.NoError(i.t, os.Symlink(target, i.path(p)))
}

func (i *image) apply() error {
	i.warn = nil
	return hook.Apply(i.root, args(), i.warned)
}

func (i *image) warned(format string, a ...any) { i.warn = append(i.warn, fmt.Sprintf(format, a...)) }

func (i *image) cache() map[string]string {
	i.t.Helper()
	data, err := os.ReadFile(i.path("/etc/ld.so.cache"))
	require.NoError(i.t, err)
	c, err := ldcache.Parse(data)
	require.NoError(i.t, err)
	out := map[string]string{}
	for _, e := range c.Entries {
		out[e.Name] = e.Path
	}
	return out
}

// tree lists everything below a directory: names, modes, link targets, content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := d.Type().String()
		switch {
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			text += target
		case d.Type().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += string(data)
		}
		out[strings.TrimPrefix(p, dir)] = text
		return nil
	}))
	return out
}

func TestLinksAndCacheAreMadeOnce(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	i.file("/etc/ld.so.cache", string(ldcache.Cache{Entries: []ldcache.Entry{{Name: "libz.so.1", Path: "/lib/libz.so.1", Flags: 0x303}}}.Encode()))
	require.NoError(t, i.apply())
	require.Empty(t, i.warn)
	require.Equal(t, map[string]string{"libz.so.1": "/lib/libz.so.1", "libcuda.so.1": libDir + "/libcuda.so.1"}, i.cache())
	for link, want := range map[string]string{
		libDir + "/libcuda.so.1": "libcuda.so.535.1", libDir + "/libcuda.so": "libcuda.so.1", "/dev/dri/by-path/pci-0000:07:00.0-card": "../card1",
	} {
		target, err := os.Readlink(i.path(link))
		require.NoError(t, err)
		require.Equal(t, want, target)
	}
	require.NoFileExists(t, i.path("/dev/dri/by-path/pci-0000:08:00.0-card"), "its card is not in the container")
	require.NoFileExists(t, i.path(libDir+"/libabsent.so.1"))
	conf, err := os.ReadFile(i.path("/etc/ld.so.conf.d/00-nri-gpu.conf"))
	require.NoError(t, err)
	require.Equal(t, libDir+"\n", string(conf))

	first := tree(t, i.root)
	require.NoError(t, i.apply())
	require.NoError(t, i.apply())
	require.Equal(t, first, tree(t, i.root), "a restart finds everything as it was left")
}

func TestAnIncludeThatIsThereIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"include /etc/ld.so.conf.d/*.conf\n", "include ld.so.conf.d/*.conf"} {
		i := newImage(t)
		i.file("/etc/ld.so.conf", line)
		require.NoError(t, i.apply())
		data, err := os.ReadFile(i.path("/etc/ld.so.conf"))
		require.NoError(t, err)
		require.Equal(t, line, string(data))
	}
	i := newImage(t)
	i.file("/etc/ld.so.conf", "/opt/lib")
	require.NoError(t, i.apply())
	data, err := os.ReadFile(i.path("/etc/ld.so.conf"))
	require.NoError(t, err)
	require.Equal(t, "/opt/lib\ninclude /etc/ld.so.conf.d/*.conf\n", string(data))
}

func TestMuslGetsASearchPathAndNoCache(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	require.NoError(t, os.Remove(i.path("/lib64/ld-linux-x86-64.so.2")))
	i.file("/lib/ld-musl-x86_64.so.1", "loader")
	require.NoError(t, i.apply())
	require.NoError(t, i.apply())
	data, err := os.ReadFile(i.path("/etc/ld-musl-x86_64.path"))
	require.NoError(t, err)
	require.Equal(t, "/lib\n/usr/local/lib\n/usr/lib\n"+libDir+"\n", string(data))
	require.NoFileExists(t, i.path("/etc/ld.so.cache"))
}

func TestAnImageWithoutALoaderGetsLinksOnly(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	require.NoError(t, os.Remove(i.path("/lib64/ld-linux-x86-64.so.2")))
	require.NoError(t, i.apply())
	require.NoFileExists(t, i.path("/etc/ld.so.cache"))
	require.FileExists(t, i.path(libDir+"/libcuda.so.1"))
}

func TestHostileImages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(*image, string)
		warn string
	}{
		"etc leads outside":            {func(i *image, out string) { i.remove("/etc"); i.link("/etc", out) }, ""},
		"etc climbs out":               {func(i *image, _ string) { i.remove("/etc"); i.link("/etc", "../../../../../../etc") }, "ld.so.c"},
		"etc dangles":                  {func(i *image, _ string) { i.remove("/etc"); i.link("/etc", "/nowhere/at/all") }, ""},
		"etc dangles upwards":          {func(i *image, _ string) { i.remove("/etc"); i.link("/etc", "../../nowhere") }, ""},
		"etc is a loop of two":         {func(i *image, _ string) { i.remove("/etc"); i.link("/etc", "/etc2"); i.link("/etc2", "/etc") }, "ld.so.cache"},
		"etc dangles into itself":      {func(i *image, _ string) { i.remove("/etc"); i.link("/etc", "/etc/x") }, "ld.so.cache"},
		"etc dangles deeply":           {func(i *image, _ string) { i.remove("/etc"); i.link("/etc", strings.Repeat("/x", 1500)) }, "ld.so.cache"},
		"etc is a file":                {func(i *image, _ string) { i.remove("/etc"); i.file("/etc", "") }, "ld.so.cache"},
		"the cache is a link outside":  {func(i *image, out string) { i.link("/etc/ld.so.cache", out+"/cache") }, ""},
		"the cache is a FIFO":          {func(i *image, _ string) { i.fifo("/etc/ld.so.cache") }, "not a regular file"},
		"the cache is a directory":     {func(i *image, _ string) { i.dir("/etc/ld.so.cache/x") }, "ld.so.cache"},
		"the cache is nonsense":        {func(i *image, _ string) { i.file("/etc/ld.so.cache", "glibc-ld.so.cache1.1 nonsense") }, "not a valid ld.so.cache"},
		"the cache is huge":            {func(i *image, _ string) { i.huge("/etc/ld.so.cache") }, "more than"},
		"a directory at a link":        {func(i *image, _ string) { i.dir(libDir + "/libcuda.so.1") }, ""},
		"another link at a link":       {func(i *image, out string) { i.link(libDir+"/libcuda.so.1", out+"/libcuda.so.1") }, ""},
		"a loop at a link":             {func(i *image, _ string) { i.link(libDir+"/libcuda.so", "libcuda.so") }, ""},
		"the conf directory leads out": {func(i *image, out string) { i.link("/etc/ld.so.conf.d", out) }, ""},
		"dev/dri leads outside":        {func(i *image, out string) { i.link("/dev/dri/by-path", out) }, ""},
		"a temporary name is taken":    {func(i *image, out string) { i.link("/etc/.ld.so.cache.nri-gpu", out+"/x") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newImage(t)
			outside := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(outside, "cache"), []byte("the host's"), 0o644))
			c.make(i, outside)
			before := tree(t, outside)
			for range 3 {
				require.NoError(t, i.apply())
				require.Equal(t, before, tree(t, outside), "nothing outside is touched")
			}
			if c.warn != "" {
				// A damaged cache is whole after the first run.
				i2 := newImage(t)
				c.make(i2, outside)
				require.NoError(t, i2.apply())
				require.Contains(t, strings.Join(i2.warn, "\n"), c.warn)
			}
			for p := range tree(t, i.root) {
				require.False(t, strings.HasSuffix(p, ".nri-gpu"), "debris: %s", p)
			}
		})
	}
}

func (i *image) remove(p string) { i.t.Helper(); require.NoError(i.t, os.RemoveAll(i.path(p))) }

func (i *image) fifo(p string) {
	i.t.Helper()
	require.NoError(i.t, unix.Mkfifo(i.path(p), 0o644))
}

func (i *image) huge(p string) {
	i.t.Helper()
	i.file(p, "")
	require.NoError(i.t, os.Truncate(i.path(p), 1<<30))
}

func TestAMountOfTheUserIsNeitherReadNorWritten(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	for _, at := range []string{"/etc", libDir} {
		i := newImage(t)
		volume := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(volume, "ld.so.cache"), []byte("the user's"), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(volume, "libcuda.so.535.1"), []byte("the user's"), 0o644))
		before := tree(t, volume)
		require.NoError(t, unix.Mount(volume, i.path(at), "", unix.MS_BIND, ""))
		require.NoError(t, i.apply())
		require.Equal(t, before, tree(t, volume), at)
		require.NotEmpty(t, i.warn, at)
		require.NoError(t, unix.Unmount(i.path(at), 0))
	}
}

func TestARootThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	err := hook.Apply(filepath.Join(t.TempDir(), "gone"), args(), func(string, ...any) {})
	require.ErrorContains(t, err, "container's root")
}

// TestARealLoaderFindsTheLibrary copies the host's glibc into a root and asks
// its own ldconfig and its own loader.
func TestARealLoaderFindsTheLibrary(t *testing.T) {
	t.Parallel()
	i := newImage(t)
	i.remove("/lib64/ld-linux-x86-64.so.2")
	program := i.path("/try")
	source := filepath.Join(t.TempDir(), "try.c")
	require.NoError(t, os.WriteFile(source, []byte(`#include <dlfcn.h>
#include <stdio.h>
int main(void) { if (dlopen("libcuda.so.1", RTLD_NOW) && dlopen("libcuda.so", RTLD_NOW)) return 0; puts(dlerror()); return 1; }`), 0o644))
	run(t, "gcc", "-o", program, source, "-ldl")
	for _, f := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/sbin/ldconfig"} {
		i.copyHost(f)
	}
	i.dir("/lib/x86_64-linux-gnu")
	out, err := exec.CommandContext(t.Context(), "chroot", i.root, "/try").CombinedOutput()
	require.Error(t, err, "without the hook it is not found: "+string(out))
	require.NoError(t, i.apply())
	require.Empty(t, i.warn)
	run(t, "chroot", i.root, "/try")
	require.Contains(t, run(t, "chroot", i.root, "/sbin/ldconfig", "-p"), "libcuda.so.1 (libc6,x86-64) => "+libDir+"/libcuda.so.1")
	run(t, "chroot", i.root, "/sbin/ldconfig")
	run(t, "chroot", i.root, "/try")
	require.Contains(t, run(t, "chroot", i.root, "/sbin/ldconfig", "-p"), "libcuda.so.1", "an ldconfig in the container keeps it")
}

func (i *image) copyHost(p string) {
	i.t.Helper()
	data, err := os.ReadFile(p)
	require.NoError(i.t, err)
	i.file(p, string(data))
	require.NoError(i.t, os.Chmod(i.path(p), 0o755))
}

func run(t *testing.T, name string, arg ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, arg...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestRootComesFromTheStateOrTheBundle(t *testing.T) {
	t.Parallel()
	bundle := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"ociVersion":"1.0","root":{"path":"rootfs"},"future":[1]}`), 0o644))
	for state, want := range map[string]string{
		`{"bundle":"` + bundle + `"}`:                 filepath.Join(bundle, "rootfs"),
		`{"bundle":"/x","root":"/given"}`:             "/given",
		`{"bundle":"` + bundle + `","root":"/run/r"}`: "/run/r",
	} {
		got, err := hook.Root(strings.NewReader(state))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, state := range []string{"", "{", "{}", `{"bundle":"/does/not/exist"}`, `{"bundle":3}`} {
		_, err := hook.Root(strings.NewReader(state))
		require.Error(t, err, state)
	}
}

func TestRootIsTheWorkingDirectoryOfRunc(t *testing.T) {
	bundle, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{"rootfs/sub", "elsewhere"} {
		require.NoError(t, os.MkdirAll(filepath.Join(bundle, dir), 0o755))
	}
	config := []byte(`{"root":{"path":"rootfs"}}`)
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644))
	state := `{"root":"/of/the/state"}`
	for dir, want := range map[string]string{
		bundle + "/rootfs": bundle + "/rootfs", bundle + "/elsewhere": "/of/the/state", bundle: "/of/the/state", other: "/of/the/state", "/": "/of/the/state",
	} {
		t.Chdir(dir)
		got, err := hook.Root(strings.NewReader(state))
		require.NoError(t, err)
		require.Equal(t, want, got, dir)
	}
	// An image that plays the bundle: of crun, whose hooks start in the bundle.
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "rootfs", "config.json"), []byte(`{"root":{"path":"sub"}}`), 0o644))
	t.Chdir(bundle + "/rootfs")
	got, err := hook.Root(strings.NewReader(state))
	require.NoError(t, err)
	require.Equal(t, bundle+"/rootfs", got)
}

func FuzzRoot(f *testing.F) {
	f.Add(`{"bundle":"/nowhere","root":"/r"}`)
	f.Fuzz(func(t *testing.T, state string) {
		if root, err := hook.Root(strings.NewReader(state)); err == nil {
			require.NotEmpty(t, root)
		}
	})
}
