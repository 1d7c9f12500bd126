package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	labelAttribute = "security.selinux"
	// containerLabel is what containers may use, for a file that has none yet.
	containerLabel = "system_u:object_r:container_file_t:s0"
	containerType  = "container_file_t"
)

// label lets containers use directories, where the node has SELinux. What a
// daemon makes in them later has their label.
func (c *Config) label(paths ...string) error {
	if _, err := os.Stat(c.Roots.Sys("fs", "selinux")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, path := range paths {
		if err := unix.Lsetxattr(path, labelAttribute, []byte(containerLabelOf(path)+"\x00"), 0); err != nil {
			return fmt.Errorf("label %q for containers (%s): %w; the node has SELinux, so containers could not use it", path, containerLabel, err)
		}
	}
	return nil
}

// containerLabelOf is the label that a path has, with another type and level.
func containerLabelOf(path string) string {
	buf := make([]byte, 256)
	n, err := unix.Lgetxattr(path, labelAttribute, buf)
	if err != nil {
		return containerLabel
	}
	parts := strings.SplitN(strings.TrimRight(string(buf[:n]), "\x00"), ":", 4)
	if len(parts) < 3 {
		return containerLabel
	}
	return strings.Join([]string{parts[0], parts[1], containerType, "s0"}, ":")
}
