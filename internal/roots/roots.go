// Package roots holds the places of a host that everything else reads below,
// so that a test, or a daemon in a pod, reads a tree of its own and never the
// machine's by accident.
package roots

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// Roots are absolute, cleaned directories as this process sees them.
type Roots struct {
	// Driver is where the driver's files lie; empty means that it is to be
	// found (internal/driverroot).
	Driver string
	// Dev is the directory that contains dev/: "/" for /dev/nvidia0.
	Dev string
	// Host is the directory that contains proc/ and sys/.
	Host string
}

// Proc is a path below /proc.
func (r Roots) Proc(elem ...string) string { return r.host("proc", elem) }

// Sys is a path below /sys.
func (r Roots) Sys(elem ...string) string { return r.host("sys", elem) }

// DevPath is where a device node lies for this process: node is the path that
// a container sees ("/dev/nvidia0").
func (r Roots) DevPath(node string) string { return filepath.Join(orSlash(r.Dev), node) }

func (r Roots) host(top string, elem []string) string {
	return filepath.Join(append([]string{orSlash(r.Host), top}, elem...)...)
}

func orSlash(dir string) string {
	if dir == "" {
		return "/"
	}
	return dir
}

// Mapping translates paths of this process to paths of the host, for a daemon
// that runs in a pod and must write host paths into CDI specs.
type Mapping []MapEntry

// MapEntry says that Inside, seen by this process, is Host on the host.
type MapEntry struct{ Inside, Host string }

// ParseMapping reads "inside=host" entries; both must be absolute.
func ParseMapping(entries []string) (Mapping, error) {
	var m Mapping
	for _, e := range entries {
		inside, host, ok := strings.Cut(e, "=")
		if !ok || !path.IsAbs(inside) || !path.IsAbs(host) {
			return nil, fmt.Errorf("host path mapping %q is not of the form /path/seen/here=/path/on/host", e)
		}
		m = append(m, MapEntry{Inside: path.Clean(inside), Host: path.Clean(host)})
	}
	return m, nil
}

// ToHost returns the host's path for a path seen here. The longest entry that
// is a whole-component prefix wins; without one the path is unchanged.
func (m Mapping) ToHost(p string) string {
	best := -1
	for i, e := range m {
		if below(p, e.Inside) && (best < 0 || len(e.Inside) > len(m[best].Inside)) {
			best = i
		}
	}
	if best < 0 {
		return p
	}
	return path.Join(m[best].Host, strings.TrimPrefix(p, m[best].Inside))
}

// FromHost is the inverse of ToHost: where this process sees a path of the
// host.
func (m Mapping) FromHost(p string) string {
	inverse := make(Mapping, len(m))
	for i, e := range m {
		inverse[i] = MapEntry{Inside: e.Host, Host: e.Inside}
	}
	return inverse.ToHost(p)
}

func below(p, dir string) bool {
	return dir == "/" || p == dir || strings.HasPrefix(p, dir+"/")
}
