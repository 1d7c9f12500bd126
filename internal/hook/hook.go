package hook

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/ldcache"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// Warn is told what could not be done.
type Warn func(format string, args ...any)

// Paths of the loaders' files in a container.
const (
	cacheFile   = "/etc/ld.so.cache"
	confFile    = "/etc/ld.so.conf"
	confDir     = "/etc/ld.so.conf.d"
	ourConf     = confDir + "/00-nri-gpu.conf"
	includeLine = "include " + confDir + "/*.conf\n"
)

// Apply makes mounts, links and caches in a root directory of this process's
// mount namespace.
func Apply(root string, args hookargs.Args, warn Warn) error {
	r, err := openRoot(root)
	if err != nil {
		return err
	}
	defer r.close()
	h := &hook{root: r, warn: warn}
	if err := h.mounts(args.Mounts); err != nil {
		return err
	}
	libraries := h.libraries(args.Libraries)
	for _, l := range args.Links {
		h.link(l.Path, l.Target)
	}
	if len(libraries) == 0 {
		return nil
	}
	h.glibc(libraries)
	h.musl(libraries)
	return nil
}

type hook struct {
	root *rootfs
	warn Warn
}

// link makes a link whose target is there.
func (h *hook) link(p, target string) {
	if !h.root.exists(absolute(p, target)) {
		return
	}
	if err := h.root.link(p, target); err != nil {
		h.warn("link %s -> %s: %v", p, target, err)
	}
}

// libraries gives each library that is there its SONAME, and returns it with
// the path by which a loader finds it.
func (h *hook) libraries(all []hookargs.Library) []hookargs.Library {
	var out []hookargs.Library
	for _, l := range all {
		if !h.root.exists(l.Path) {
			continue // a volume of the pod's is there instead
		}
		if name := path.Join(path.Dir(l.Path), l.SONAME); name != l.Path {
			h.link(name, path.Base(l.Path))
			if h.root.exists(name) {
				l.Path = name
			}
		}
		out = append(out, l)
	}
	return out
}

// glibc merges the libraries into the cache of an image with glibc's loader,
// and names their directories where a later ldconfig looks.
func (h *hook) glibc(libraries []hookargs.Library) {
	old, err := h.root.read(cacheFile)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		h.warn("%s is not read, and is replaced: %v", cacheFile, err)
	}
	if errors.Is(err, unix.ENOENT) && !h.hasGlibc() {
		return
	}
	cache := ldcache.Cache{}
	if err == nil {
		if cache, err = ldcache.Parse(old); err != nil {
			h.warn("%s is not read, and is replaced: %v", cacheFile, err)
		}
	}
	merged := cache.Merge(entries(libraries))
	if err := h.root.write(cacheFile, merged.Encode()); err != nil {
		h.warn("write %s: %v; the container's programs may not find the driver's libraries", cacheFile, err)
	}
	h.conf(directories(libraries))
}

func (h *hook) hasGlibc() bool {
	return slices.ContainsFunc([]string{
		"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-x86-64.so.2", "/usr/lib64/ld-linux-x86-64.so.2",
		"/lib/ld-linux-aarch64.so.1", "/usr/lib/ld-linux-aarch64.so.1",
	}, h.root.exists)
}

func entries(libraries []hookargs.Library) []ldcache.Entry {
	out := make([]ldcache.Entry, 0, len(libraries))
	for _, l := range libraries {
		out = append(out, ldcache.Entry{Name: l.SONAME, Path: l.Path, Flags: ldcache.FlagELFLibc6 | architecture(l.Is32Bit)})
	}
	return out
}

func architecture(is32Bit bool) uint32 {
	switch {
	case runtime.GOARCH == "arm64" && is32Bit:
		return ldcache.FlagARMHardFloat
	case runtime.GOARCH == "arm64":
		return ldcache.FlagAArch64
	case is32Bit:
		return ldcache.FlagI386
	}
	return ldcache.FlagX8664
}

func directories(libraries []hookargs.Library) []string {
	var out []string
	for _, l := range libraries {
		if dir := path.Dir(l.Path); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

func (h *hook) conf(dirs []string) {
	if err := h.root.write(ourConf, []byte(strings.Join(dirs, "\n")+"\n")); err != nil {
		h.warn("write %s: %v; an ldconfig in the container would forget the driver", ourConf, err)
		return
	}
	conf, err := h.root.read(confFile)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		h.warn("read %s: %v", confFile, err)
		return
	}
	for line := range strings.Lines(string(conf)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "include" && includes(fields[1]) {
			return
		}
	}
	if len(conf) > 0 && !strings.HasSuffix(string(conf), "\n") {
		conf = append(conf, '\n')
	}
	if err := h.root.write(confFile, append(conf, includeLine...)); err != nil {
		h.warn("write %s: %v", confFile, err)
	}
}

// includes tells whether an include's pattern covers our file.
func includes(pattern string) bool {
	if !path.IsAbs(pattern) {
		pattern = path.Join(path.Dir(confFile), pattern)
	}
	ok, err := path.Match(pattern, ourConf)
	return err == nil && ok
}

// musl adds the directories to the search path of an image with musl's loader,
// which has no cache.
func (h *hook) musl(libraries []hookargs.Library) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if !h.root.exists("/lib/ld-musl-" + arch + ".so.1") {
		return
	}
	file := "/etc/ld-musl-" + arch + ".path"
	text, err := h.root.read(file)
	switch {
	case errors.Is(err, unix.ENOENT):
		text = []byte("/lib\n/usr/local/lib\n/usr/lib\n") // what musl does without the file
	case err != nil:
		h.warn("read %s: %v", file, err)
		return
	}
	have := strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' || c == ':' })
	if len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
		text = append(text, '\n')
	}
	for _, dir := range directories(libraries) {
		if !slices.Contains(have, dir) {
			text = fmt.Appendf(text, "%s\n", dir)
		}
	}
	if err := h.root.write(file, text); err != nil {
		h.warn("write %s: %v", file, err)
	}
}
