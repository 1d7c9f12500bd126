package hook

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rootByDirectory returns the container's root when that is this process's
// working directory, as runc has it: then the bundle is the directory above, and
// its config.json names this one. The state on the standard input says the same
// up to 10 ms later, since runc writes it from a process of one thread that has
// gone on to wait.
//
// Only the directory above is believed. What lies in the working directory may
// be the image's, a config.json of its own included.
func rootByDirectory() (string, bool) {
	cwd, err := os.Getwd()
	if err != nil || cwd == "/" {
		return "", false
	}
	root, err := rootOfBundle(filepath.Dir(cwd))
	if err != nil {
		return "", false
	}
	var here, there unix.Stat_t
	if unix.Stat(".", &here) != nil || unix.Stat(root, &there) != nil {
		return "", false
	}
	return root, here.Dev == there.Dev && here.Ino == there.Ino
}
