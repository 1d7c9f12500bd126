package hook

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// rootfs is a container's root directory. Its methods take absolute paths of
// the container.
type rootfs struct {
	fd int
	// links is how many links to nothing were followed to make what they lead
	// to, of maxLinks.
	links int
}

// maxLinks and maxDepth bound the work that links of an image can make.
const (
	maxLinks = 40
	maxDepth = 64
)

// within resolves inside the root, and stays on the root's own mount.
const within = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func openRoot(dir string) (*rootfs, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the container's root %q: %w", dir, err)
	}
	r := &rootfs{fd: fd}
	probe, err := r.open("/", unix.O_PATH, within)
	if err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.ENOSYS) {
			return nil, errors.New("this kernel has no openat2, without which paths of an image cannot be resolved safely; Linux 5.6 or newer is needed")
		}
		return nil, fmt.Errorf("open the container's root %q: %w", dir, err)
	}
	_ = unix.Close(probe)
	return r, nil
}

func (r *rootfs) close() { _ = unix.Close(r.fd) }

func (r *rootfs) open(p string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	for {
		fd, err := unix.Openat2(r.fd, strings.TrimPrefix(path.Clean("/"+p), "/")+dot(p), &how)
		// EAGAIN: a rename raced with a ".."; nothing runs in the container yet,
		// so it ends.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// dot makes the root itself a path that is not empty.
func dot(p string) string {
	if path.Clean("/"+p) == "/" {
		return "."
	}
	return ""
}

// exists tells whether a path names something, a file that is mounted there
// included: nothing is opened that could be read.
func (r *rootfs) exists(p string) bool {
	fd, err := r.open(p, unix.O_PATH, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// directory opens a directory, and makes what is missing of it: also what a
// link to nothing leads to, as runtimes do for a mount.
func (r *rootfs) directory(dir string) (int, error) {
	fd, err := r.open(dir, unix.O_DIRECTORY|unix.O_RDONLY, within)
	if !errors.Is(err, unix.ENOENT) || dir == "/" {
		return fd, err
	}
	if strings.Count(dir, "/") > maxDepth {
		return -1, unix.ENAMETOOLONG
	}
	parent, err := r.directory(path.Dir(dir))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	err = unix.Mkdirat(parent, path.Base(dir), 0o755)
	if errors.Is(err, unix.EEXIST) && r.links < maxLinks {
		r.links++
		if target, err := readlinkat(parent, path.Base(dir)); err == nil {
			return r.directory(absolute(dir, target))
		}
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return r.open(dir, unix.O_DIRECTORY|unix.O_RDONLY, within)
}

// absolute returns where a link leads, as far as its text tells.
func absolute(link, target string) string {
	if path.IsAbs(target) {
		return path.Clean(target)
	}
	return path.Join(path.Dir(link), target)
}

// link makes a symbolic link, and replaces another link that is in its place.
// A file or a directory in its place is left alone.
func (r *rootfs) link(p, target string) error {
	dir, err := r.directory(path.Dir(p))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	switch current, err := readlinkat(dir, name); {
	case err == nil && current == target:
		return nil
	case errors.Is(err, unix.EINVAL):
		return nil // something else than a link
	case err != nil && !errors.Is(err, unix.ENOENT):
		return err
	}
	return replace(dir, name, func(temporary string) error { return unix.Symlinkat(target, dir, temporary) })
}

func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// replace makes something under a temporary name and renames it.
func replace(dir int, name string, create func(temporary string) error) error {
	temporary := "." + name + ".nri-gpu"
	err := create(temporary)
	if errors.Is(err, unix.EEXIST) { // of a hook that was killed
		if err = unix.Unlinkat(dir, temporary, 0); err == nil {
			err = create(temporary)
		}
	}
	if err == nil {
		err = unix.Renameat(dir, temporary, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
	}
	return err
}

// maxFile bounds what is read of a container, in bytes.
const maxFile = 32 << 20

// read returns a regular file's content; unix.ENOENT when there is none.
func (r *rootfs) read(p string) ([]byte, error) {
	// O_NONBLOCK: a FIFO in the place of a file must not hold us up.
	fd, err := r.open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, within)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("has %d bytes, more than %d", info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// write replaces a file, unless it has this content already. A link in its
// place is replaced, and what it leads to is left alone; a directory is an
// error.
func (r *rootfs) write(p string, data []byte) error {
	if old, err := r.read(p); err == nil && string(old) == string(data) {
		return nil
	}
	dir, err := r.directory(path.Dir(p))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return replace(dir, path.Base(p), func(temporary string) error {
		fd, err := unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), p)
		_, err = f.Write(data)
		if err == nil {
			err = f.Chmod(0o644) // whatever the umask
		}
		return errors.Join(err, f.Close())
	})
}
