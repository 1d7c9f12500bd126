package driverroot

import (
	"debug/elf"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// libraries collects the shared objects of the driver's version, and those of
// the versionless names, in every directory and its vdpau and tls below.
func (f *finder) libraries() {
	seen := map[string]bool{}
	for _, dir := range f.dirs {
		for _, sub := range []string{"", "vdpau", "tls"} {
			f.librariesIn(path.Join(dir, sub), seen)
		}
	}
	slices.SortFunc(f.files.Libraries, func(a, b Library) int { return strings.Compare(a.Container, b.Container) })
	f.reportLibraries()
}

func (f *finder) librariesIn(dir string, seen map[string]bool) {
	resolved, names := f.tree.list(dir)
	for _, name := range names {
		if !f.hasVersion(name) && !isDriverLibrary(name) {
			continue
		}
		file, err := f.tree.regular(path.Join(resolved, name))
		if err != nil {
			f.files.Report.problem(path.Join(resolved, name), err.Error())
			continue
		}
		// A link may be all that a directory has of a library (NixOS).
		if seen[file] || !f.wanted(path.Base(file)) {
			continue
		}
		seen[file] = true
		f.addLibrary(file)
	}
}

func (f *finder) wanted(name string) bool {
	stem, ok := stemOf(name)
	if !ok || strings.HasPrefix(name, "libglxserver") { // the X server's module has a place of its own
		return false
	}
	if f.hasVersion(name) {
		return true
	}
	return slices.ContainsFunc(versionless(), func(p string) bool { return matches(p, stem) }) && strings.Contains(name, ".so.")
}

func (f *finder) addLibrary(file string) {
	info, err := readELF(f.tree.host(file))
	if err != nil {
		f.files.Report.problem(file, fmt.Sprintf("is not a usable library: %v", err))
		return
	}
	stem, _ := stemOf(file)
	caps := capabilitiesOf(stem)
	if info.is32Bit {
		caps = []cdi.Capability{cdi.Compat32}
	}
	lib := Library{
		File:    File{Source: f.tree.host(file), Container: f.containerLibrary(file, info.is32Bit), Capabilities: caps},
		SONAME:  info.soname,
		Is32Bit: info.is32Bit,
	}
	if lib.SONAME == "" {
		lib.SONAME = path.Base(file)
	}
	if slices.ContainsFunc(f.files.Libraries, func(l Library) bool { return l.Container == lib.Container }) {
		f.files.Report.problem(file, "another file of the same name was found first")
		return
	}
	lib.Links = f.links(lib, stem, file)
	f.files.Libraries = append(f.files.Libraries, lib)
}

// links are the names that programs use beside the SONAME: the development
// link, which programs that dlopen "libcuda.so" need, where the driver has it or
// is known to be asked for it; and the fixed ones of GLVND and GBM.
func (f *finder) links(lib Library, stem, file string) map[string]string {
	dir := path.Dir(lib.Container)
	links := map[string]string{}
	dev := path.Join(dir, "lib"+stem+".so")
	if _, err := f.tree.regular(path.Join(path.Dir(file), "lib"+stem+".so")); err == nil || stem == "cuda" || stem == "nvidia-opticalflow" {
		links[dev] = lib.SONAME
	}
	switch stem {
	case "GLX_nvidia":
		links[path.Join(dir, "libGLX_indirect.so.0")] = path.Base(lib.Container)
	case "nvidia-allocator":
		links[path.Join(dir, "gbm/nvidia-drm_gbm.so")] = "../" + lib.SONAME
	case "nvidia-vulkan-producer":
		links[dev] = path.Base(lib.Container)
	}
	return links
}

// containerLibrary maps a library's path to the container: the same path when a
// loader finds it there, else this machine's canonical directory, so that an
// image whose programs bring a loader of their own finds it too. GKE's images
// expect /usr/local/nvidia.
func (f *finder) containerLibrary(file string, is32Bit bool) string {
	dir, base := path.Split(file)
	dir = path.Clean(dir)
	if f.layout == "GKE" {
		return path.Join("/usr/local/nvidia", file)
	}
	sub := ""
	if b := path.Base(dir); b == "vdpau" || b == "tls" {
		dir, sub = path.Dir(dir), b
	}
	if !slices.Contains(loaderDirs(), dir) {
		dir = canonicalDir(is32Bit)
	}
	return path.Join(dir, sub, base)
}

// loaderDirs are directories that some distribution's loader searches.
func loaderDirs() []string {
	return []string{
		"/usr/lib/" + multiarch(), "/usr/lib64", "/usr/lib", "/lib64", "/lib/" + multiarch(), "/lib",
		"/usr/lib/i386-linux-gnu", "/usr/lib32",
	}
}

func (f *finder) reportLibraries() {
	for _, l := range f.files.Libraries {
		f.files.Report.found("library", path.Base(l.Container), l.Source, l.Capabilities)
	}
	for _, r := range libraryRules() {
		if strings.HasSuffix(r.name, "*") {
			continue
		}
		if !slices.ContainsFunc(f.files.Libraries, func(l Library) bool { s, _ := stemOf(l.Source); return s == r.name }) {
			f.files.Report.missing("library", fmt.Sprintf("lib%s.so.%s", r.name, f.files.Version),
				fmt.Sprintf("in none of %d directories", len(f.dirs)), r.capabilities)
		}
	}
}

type elfInfo struct {
	soname  string
	is32Bit bool
}

func readELF(file string) (info elfInfo, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return elfInfo{}, err
	}
	defer f.Close()
	if f.Type != elf.ET_DYN {
		return elfInfo{}, fmt.Errorf("it is %v and no shared object", f.Type)
	}
	info.is32Bit = f.Class == elf.ELFCLASS32
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil {
		return elfInfo{}, fmt.Errorf("read its SONAME: %w", err)
	}
	if len(names) > 0 {
		info.soname = names[0]
	}
	return info, nil
}
