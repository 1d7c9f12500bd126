package driverroot

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// first looks for a name in directories in order.
func (f *finder) first(dirs []string, name string) (string, bool) {
	for _, d := range dirs {
		if resolved, err := f.tree.regular(path.Join(d, name)); err == nil {
			return resolved, true
		}
	}
	return "", false
}

func (f *finder) binaries() {
	for _, r := range binaryRules() {
		found := false
		for _, d := range binaryDirs() {
			resolved, err := f.tree.regular(path.Join(d, r.name))
			if err != nil || !executable(f.tree.host(resolved)) {
				continue
			}
			found = true
			f.files.Binaries = append(f.files.Binaries, File{Source: f.tree.host(resolved), Container: f.containerBinary(d, r.name), Capabilities: r.capabilities})
			f.files.Report.found("binary", r.name, f.tree.host(resolved), r.capabilities)
			break
		}
		if !found {
			f.files.Report.missing("binary", r.name, fmt.Sprintf("in none of %s", strings.Join(binaryDirs(), ", ")), r.capabilities)
		}
	}
}

// containerBinary keeps a directory that is on every PATH.
func (f *finder) containerBinary(dir, name string) string {
	switch {
	case f.layout == "GKE":
		return path.Join("/usr/local/nvidia/bin", name)
	case slices.Contains([]string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"}, dir):
		return path.Join(dir, name)
	}
	return path.Join("/usr/bin", name)
}

func executable(file string) bool {
	return unix.Access(file, unix.X_OK) == nil
}

func (f *finder) configs() {
	for _, r := range configRules() {
		found := false
		for _, d := range configDirs() {
			resolved, err := f.tree.regular(path.Join(d, r.name))
			if err != nil {
				continue
			}
			found = true
			container := path.Join(d, r.name)
			switch d {
			case "/": // GKE has vulkan/ right below its root
				container = path.Join("/etc", r.name)
			case nixShare:
				container = path.Join("/usr/share", r.name)
			}
			f.files.Configs = append(f.files.Configs, File{Source: f.tree.host(resolved), Container: container, Capabilities: r.capabilities})
			f.files.Report.found("config", r.name, f.tree.host(resolved), r.capabilities)
			break
		}
		if !found && f.besideLibraries(r) {
			continue
		}
		if !found {
			f.files.Report.missing("config", r.name, fmt.Sprintf("below none of %s", strings.Join(configDirs(), ", ")), r.capabilities)
		}
	}
}

// besideLibraries finds a data file where Debian has it, in the directory of
// the driver's libraries.
func (f *finder) besideLibraries(r fileRule) bool {
	resolved, ok := f.first(f.dirs, path.Base(r.name))
	if !ok {
		return false
	}
	f.files.Configs = append(f.files.Configs, File{Source: f.tree.host(resolved), Container: path.Join("/usr/share", r.name), Capabilities: r.capabilities})
	f.files.Report.found("config", r.name, f.tree.host(resolved), r.capabilities)
	return true
}

// xorg adds the X server's modules at their own path.
func (f *finder) xorg() {
	display := []cdi.Capability{cdi.Display}
	for _, name := range xorgFiles(f.files.Version) {
		resolved, ok := f.first(xorgDirs(f.dirs), name)
		if !ok {
			f.files.Report.missing("config", name, "in no X.Org module directory", display)
			continue
		}
		f.files.Configs = append(f.files.Configs, File{Source: f.tree.host(resolved), Container: resolved, Capabilities: display})
		f.files.Report.found("config", name, f.tree.host(resolved), display)
	}
}

// firmware adds the GSP firmware of the driver's version. The kernel's search
// path may name a directory anywhere, also one that already includes the root.
func (f *finder) firmware(r roots.Roots) {
	utility := []cdi.Capability{cdi.Utility}
	dirs := []string{"/lib/firmware/updates/" + release(), "/lib/firmware/updates", "/lib/firmware/" + release(), "/lib/firmware"}
	if data, err := os.ReadFile(r.Sys("module", "firmware_class", "parameters", "path")); err == nil {
		if custom := strings.TrimSpace(string(data)); custom != "" {
			dirs = append([]string{strings.TrimPrefix(custom, strings.TrimSuffix(f.files.Root, "/")), custom}, dirs...)
		}
	}
	count := 0
	for _, d := range dirs {
		for _, file := range f.tree.glob(path.Join(d, "nvidia", f.files.Version, "gsp*.bin")) {
			resolved, err := f.tree.regular(file)
			container := path.Join("/lib/firmware/nvidia", f.files.Version, path.Base(file))
			if err != nil || slices.ContainsFunc(f.files.Firmware, func(x File) bool { return x.Container == container }) {
				continue
			}
			count++
			f.files.Firmware = append(f.files.Firmware, File{Source: f.tree.host(resolved), Container: container, Capabilities: utility})
			f.files.Report.found("firmware", path.Base(file), f.tree.host(resolved), utility)
		}
	}
	if count == 0 {
		f.files.Report.missing("firmware", "gsp*.bin", fmt.Sprintf("below nvidia/%s in none of %s", f.files.Version, strings.Join(dirs, ", ")), utility)
	}
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	name, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return string(name)
}

// sockets adds the sockets of the node's daemons and the MPS pipe directory.
func (f *finder) sockets() {
	for _, s := range []struct {
		paths      []string
		mode       os.FileMode
		capability cdi.Capability
	}{
		{[]string{"/run/nvidia-persistenced/socket", "/var/run/nvidia-persistenced/socket"}, os.ModeSocket, cdi.Utility},
		{[]string{"/run/nvidia-fabricmanager/socket", "/var/run/nvidia-fabricmanager/socket"}, os.ModeSocket, cdi.Utility},
		{[]string{"/tmp/nvidia-mps"}, os.ModeDir, cdi.Compute},
	} {
		f.socket(s.paths, s.mode, []cdi.Capability{s.capability})
	}
}

func (f *finder) socket(paths []string, mode os.FileMode, caps []cdi.Capability) {
	for _, p := range paths {
		resolved, err := f.tree.resolve(p)
		if err != nil {
			continue
		}
		if info, err := os.Lstat(f.tree.host(resolved)); err == nil && info.Mode()&os.ModeType == mode {
			f.files.Sockets = append(f.files.Sockets, File{Source: f.tree.host(resolved), Container: paths[0], Capabilities: caps})
			f.files.Report.found("socket", paths[0], f.tree.host(resolved), caps)
			return
		}
	}
	f.files.Report.missing("socket", paths[0], "its daemon does not run", caps)
}
