// Package version says what this build is.
package version

import "runtime/debug"

// linked is the version that the Makefile names: what git describes.
var linked string //nolint:gochecknoglobals // the linker can set nothing else

// String is the version that was linked in, else what the build knows: a module
// version, or the commit with "-dirty" when the tree had changes, or "unknown".
func String() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision + dirty
}
