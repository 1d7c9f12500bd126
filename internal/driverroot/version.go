package driverroot

import (
	"path"
	"strconv"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
)

// version decides which driver's files to take: the loaded kernel module's,
// since a library of another version cannot talk to it; then what the caller
// knows; then the newest among the files.
func (f *finder) version(o Options) {
	report := &f.files.Report
	switch {
	case hostfs.DriverVersion(o.Roots) != "":
		f.files.Version, report.VersionFrom = hostfs.DriverVersion(o.Roots), "kernel module"
	case o.Version != "":
		f.files.Version, report.VersionFrom = o.Version, "NVML"
	default:
		f.files.Version, report.VersionFrom = f.newest(), "file names"
	}
	report.Version = f.files.Version
}

func (f *finder) newest() string {
	best := ""
	for _, stem := range []string{"cuda", "nvidia-ml"} {
		for _, v := range f.otherVersions(stem) {
			if isVersion(v) && (best == "" || newer(v, best)) {
				best = v
			}
		}
	}
	return best
}

// isVersion tells a driver version ("535.309.01") from another suffix ("1").
func isVersion(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return false
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 32); err != nil {
			return false
		}
	}
	return true
}

// newer compares part by part as numbers: 550.9 is older than 550.10.
func newer(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.ParseUint(as[i], 10, 32)
		y, _ := strconv.ParseUint(bs[i], 10, 32)
		if x != y {
			return x > y
		}
	}
	return len(as) > len(bs)
}

// hasVersion tells whether a library file is of the driver's version.
func (f *finder) hasVersion(file string) bool {
	return f.files.Version != "" && strings.HasSuffix(path.Base(file), ".so."+f.files.Version)
}
