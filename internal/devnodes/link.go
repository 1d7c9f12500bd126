package devnodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Link makes a link /dev/char/MAJOR:MINOR for each of some nodes, by the paths
// that a container sees, and mends one that leads elsewhere. A node that is not
// there is passed over.
//
// runc hands systemd the device rules of a container by that path. Where it does
// not exist, systemd has no rule for the node, and the next time that it sets up
// the rules of running containers (`systemctl daemon-reload`, a change of their
// resources) they lose it.
func Link(r roots.Roots, nodes []string) []Problem {
	var problems []Problem
	for _, n := range nodes {
		path := r.DevPath(n)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if why := link(r, path); why != "" {
			problems = append(problems, Problem{Node: n, Why: why})
		}
	}
	return problems
}

// link makes or mends the link of a node, and returns why it could not.
func link(r roots.Roots, path string) string {
	var node unix.Stat_t
	if err := unix.Lstat(path, &node); err != nil {
		return fmt.Sprintf("%s: %v", path, err)
	}
	char := r.DevPath(fmt.Sprintf("/dev/char/%d:%d", unix.Major(node.Rdev), unix.Minor(node.Rdev)))
	if leadsTo(char, node.Rdev) {
		return ""
	}
	if err := relink(path, char); err != nil {
		return fmt.Sprintf("its link %s cannot be made: %v; without it systemd may take the card from running containers at a reload", char, err)
	}
	return ""
}

// leadsTo tells whether a path is the character device with the given numbers,
// or a link to it, whatever its text.
func leadsTo(path string, rdev uint64) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == rdev
}

// relink puts a relative link in place at once, so that nobody meets the moment
// without it. Only a link is replaced.
func relink(path, char string) error {
	info, err := os.Lstat(char)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return errors.New("something else is there, which is no link; remove it")
	}
	target, err := filepath.Rel(filepath.Dir(char), path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(char), 0o755); err != nil {
		return err
	}
	draft := draftOf(char)
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, draft); err != nil {
		return err
	}
	return os.Rename(draft, char)
}
