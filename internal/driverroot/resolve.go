package driverroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxLinks is Linux's own bound (MAXSYMLINKS).
const maxLinks = 40

var errTooManyLinks = errors.New("too many levels of symbolic links")

// tree is a directory that is treated as "/".
type tree string

// host is the path on this machine of a path within the tree.
func (t tree) host(p string) string { return filepath.Join(string(t), p) }

// resolve follows every link of p and returns the path within the tree that is
// left, clean and absolute. What it names exists.
func (t tree) resolve(p string) (string, error) {
	done, rest := "/", path.Clean("/"+p)
	for links := 0; ; {
		rest = strings.TrimPrefix(rest, "/")
		if rest == "" {
			return done, nil
		}
		var elem string
		elem, rest, _ = strings.Cut(rest, "/")
		if elem == ".." || elem == "." {
			done = path.Join(done, elem)
			continue
		}
		next := path.Join(done, elem)
		info, err := os.Lstat(t.host(next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", p, errTooManyLinks)
		}
		target, err := os.Readlink(t.host(next))
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = "/"
		}
		// The link's elements are walked one by one, ".." included, since a
		// ".." after a link means the parent of what the link names.
		rest = strings.TrimPrefix(target, "/") + "/" + rest
	}
}

// regular resolves p to a regular file.
func (t tree) regular(p string) (string, error) {
	resolved, err := t.resolve(p)
	if err != nil {
		return "", err
	}
	info, err := os.Lstat(t.host(resolved))
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", p)
	}
	return resolved, nil
}

// list names the entries of a directory, links resolved; nothing when it is
// not there.
func (t tree) list(dir string) (resolved string, names []string) {
	resolved, err := t.resolve(dir)
	if err != nil {
		return "", nil
	}
	entries, err := os.ReadDir(t.host(resolved))
	if err != nil {
		return "", nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return resolved, names
}

// glob matches a pattern whose directories may be links.
func (t tree) glob(pattern string) []string {
	dir, base := path.Split(pattern)
	resolved, names := t.list(dir)
	var out []string
	for _, n := range names {
		if ok, err := path.Match(base, n); err == nil && ok {
			out = append(out, path.Join(resolved, n))
		}
	}
	return out
}
