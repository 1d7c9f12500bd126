package driverroot

import (
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/ldcache"
)

// maxCacheSize bounds what is read of an ld.so.cache, in bytes; a large
// distribution's has some hundred kilobytes.
const maxCacheSize = 64 << 20

// multiarch is Debian's name of this machine's architecture.
func multiarch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// canonicalDir is where containers get libraries whose own directory is on no
// loader's path.
func canonicalDir(is32Bit bool) string {
	if is32Bit {
		return "/usr/lib/i386-linux-gnu"
	}
	return "/usr/lib/" + multiarch()
}

// fixedDirs are the library directories of the known layouts.
func fixedDirs() []string {
	return []string{
		"/usr/lib/" + multiarch(),                     // Debian, Ubuntu
		"/usr/lib/" + multiarch() + "/nvidia/current", // Debian's alternatives
		"/usr/lib64", "/usr/lib", // RHEL, Arch
		"/lib64", "/lib/" + multiarch(), "/lib", // GKE has lib64 below its own root
		"/glibc/usr/lib", "/usr/local/glibc/usr/lib", // Talos, by its root or by "/"
		"/run/opengl-driver/lib", // NixOS
		"/usr/lib/i386-linux-gnu", "/usr/lib/i386-linux-gnu/nvidia/current", "/usr/lib32", "/run/opengl-driver-32/lib",
	}
}

// libraryDirs merges every source of directories, resolved, each once, in the
// order of trust: what the caller gave, the fixed ones, ld.so.conf, the cache.
func (t tree) libraryDirs(given []string, report *Report) []string {
	var out []string
	add := func(source string, dirs []string) {
		for _, d := range dirs {
			resolved, names := t.list(d)
			if names == nil || slices.Contains(out, resolved) {
				continue
			}
			out = append(out, resolved)
			report.dir(source, resolved)
		}
	}
	add("given", given)
	add("layout", fixedDirs())
	add("ld.so.conf", t.confDirs("/etc/ld.so.conf", 0))
	for _, cache := range []string{"/etc/ld.so.cache", "/glibc/etc/ld.so.cache", "/usr/local/glibc/etc/ld.so.cache"} {
		add(cache, t.cacheDirs(cache, report))
	}
	return out
}

// confDirs reads ld.so.conf with its includes.
func (t tree) confDirs(file string, depth int) []string {
	resolved, err := t.regular(file)
	if err != nil || depth > 4 {
		return nil
	}
	data, err := os.ReadFile(t.host(resolved))
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if pattern, ok := strings.CutPrefix(line, "include "); ok {
			pattern = strings.TrimSpace(pattern)
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(file), pattern)
			}
			for _, f := range t.glob(pattern) {
				out = append(out, t.confDirs(f, depth+1)...)
			}
		} else if path.IsAbs(line) {
			out = append(out, line)
		}
	}
	return out
}

// cacheDirs lists the directories of NVIDIA libraries in an ld.so.cache.
func (t tree) cacheDirs(file string, report *Report) []string {
	resolved, err := t.regular(file)
	if err != nil {
		return nil
	}
	info, err := os.Stat(t.host(resolved))
	if err != nil || info.Size() > maxCacheSize {
		report.problem(file, "is too large for a loader's cache; run ldconfig")
		return nil
	}
	data, err := os.ReadFile(t.host(resolved))
	if err != nil {
		report.problem(file, err.Error())
		return nil
	}
	cache, err := ldcache.Parse(data)
	if err != nil {
		report.problem(file, err.Error()+"; the other sources of directories are used, run ldconfig to repair it")
		return nil
	}
	var out []string
	for _, e := range cache.Entries {
		if dir := path.Dir(e.Path); isDriverLibrary(e.Name) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}
