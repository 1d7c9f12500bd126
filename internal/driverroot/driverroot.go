package driverroot

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// NVMLName is the library that discovery loads.
const NVMLName = "libnvidia-ml.so.1"

// Options say where to look.
type Options struct {
	Roots roots.Roots
	// LibraryDirs are directories within the root to look in first.
	LibraryDirs []string
	// Version is the driver's version where a caller knows it (NVML), used when
	// the kernel does not say.
	Version string
}

// File is a file of the driver.
type File struct {
	// Source is where it lies for this process, links resolved.
	Source string
	// Container is the path that a container sees.
	Container    string
	Capabilities []cdi.Capability
}

// Library is a shared object of the driver.
type Library struct {
	File
	// SONAME is its DT_SONAME, or the file's name when it has none.
	SONAME string
	// Links are further names in the container's directory: link → target.
	Links   map[string]string
	Is32Bit bool
}

// Files is what a driver root holds for containers. Each list is sorted.
type Files struct {
	Root      string
	Version   string
	Libraries []Library
	Binaries  []File
	Configs   []File
	Firmware  []File
	// Sockets are Unix sockets and the MPS pipe directory of the node's daemons.
	Sockets []File
	Report  Report
}

// NotFoundError says that no driver lies where it was looked for; it is
// fs.ErrNotExist.
type NotFoundError struct{ Looked []string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no %s below %s", NVMLName, strings.Join(e.Looked, ", "))
}

// Unwrap makes it fs.ErrNotExist.
func (e *NotFoundError) Unwrap() error { return fs.ErrNotExist }

// candidate is a place where a driver may be installed, below the host root.
type candidate struct{ path, layout string }

func candidates() []candidate {
	return []candidate{
		{"/", "host"},
		{"/run/nvidia/driver", "driver container"},
		{"/home/kubernetes/bin/nvidia", "GKE"},
		{"/usr/local", "Talos"},
		{"/opt/nvidia", "opt"},
	}
}

// Locate returns the driver root: the given one, else the first of the known
// places below the host root that has NVML.
func Locate(r roots.Roots) (root, layout string, err error) {
	if r.Driver != "" {
		if _, err := nvmlBelow(tree(r.Driver)); err != nil {
			return "", "", &NotFoundError{Looked: []string{r.Driver}}
		}
		return r.Driver, layoutOf(r.Driver), nil
	}
	host := r.Host
	if host == "" {
		host = "/"
	}
	var looked []string
	for _, c := range candidates() {
		dir := filepath.Join(host, c.path)
		if _, err := nvmlBelow(tree(dir)); err == nil {
			return dir, c.layout, nil
		}
		looked = append(looked, dir)
	}
	return "", "", &NotFoundError{Looked: looked}
}

func layoutOf(root string) string {
	for _, c := range candidates() {
		if c.path != "/" && strings.HasSuffix(filepath.Clean(root), c.path) {
			return c.layout
		}
	}
	return "given"
}

// NVML returns the path of libnvidia-ml.so.1 for this process.
func NVML(r roots.Roots) (string, error) {
	root, _, err := Locate(r)
	if err != nil {
		return "", err
	}
	resolved, err := nvmlBelow(tree(root))
	if err != nil {
		return "", err
	}
	return tree(root).host(resolved), nil
}

func nvmlBelow(t tree) (string, error) {
	var report Report
	for _, dir := range t.libraryDirs(nil, &report) {
		if resolved, err := t.regular(path.Join(dir, NVMLName)); err == nil {
			return resolved, nil
		}
		// Packages that were unpacked without their scripts have no link.
		for _, f := range t.glob(path.Join(dir, "libnvidia-ml.so.*.*")) {
			if resolved, err := t.regular(f); err == nil {
				return resolved, nil
			}
		}
	}
	return "", &NotFoundError{Looked: []string{string(t)}}
}

// Find collects the driver's files. A driver of which a required library is
// missing, or of another version than the loaded module, is an error that says
// so; the files are returned all the same, for their report.
func Find(o Options) (*Files, error) {
	root, layout, err := Locate(o.Roots)
	if err != nil {
		return nil, err
	}
	f := &finder{tree: tree(root), layout: layout, files: &Files{Root: root, Report: Report{Root: root, Layout: layout}}}
	f.dirs = f.tree.libraryDirs(o.LibraryDirs, &f.files.Report)
	f.version(o)
	f.libraries()
	f.binaries()
	f.configs()
	f.xorg()
	f.firmware(o.Roots)
	f.sockets()
	return f.files, f.complete()
}

type finder struct {
	tree   tree
	layout string
	dirs   []string
	files  *Files
}

// complete checks that what every container needs is there.
func (f *finder) complete() error {
	have := map[string]bool{}
	for _, l := range f.files.Libraries {
		if stem, ok := stemOf(l.Source); ok && !l.Is32Bit {
			have[stem] = true
		}
	}
	for _, stem := range required() {
		if have[stem] {
			continue
		}
		name := fmt.Sprintf("lib%s.so.%s", stem, f.files.Version)
		if others := f.otherVersions(stem); len(others) > 0 {
			return fmt.Errorf("driver root %s has lib%s.so of version %s, and the loaded kernel module is %s; reload the module or reinstall the driver",
				f.files.Root, stem, strings.Join(others, " and "), f.files.Version)
		}
		return fmt.Errorf("driver root %s has no %s in any of its %d library directories; reinstall the driver, see the report for where it was looked for",
			f.files.Root, name, len(f.dirs))
	}
	return nil
}

// otherVersions lists the versions of a library other than the one that is
// taken.
func (f *finder) otherVersions(stem string) []string {
	var out []string
	for _, dir := range f.dirs {
		for _, file := range f.tree.glob(path.Join(dir, "lib"+stem+".so.*.*")) {
			if _, version, _ := strings.Cut(path.Base(file), ".so."); version != f.files.Version {
				out = append(out, version)
			}
		}
	}
	return out
}
