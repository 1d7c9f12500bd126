package hook

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// CanMount tells whether this kernel mounts by descriptors, as the hook does:
// Linux 5.12 or newer.
func CanMount() error {
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{})
	if errors.Is(err, unix.ENOSYS) {
		return errors.New("this kernel has no mount_setattr, which came with Linux 5.12")
	}
	return nil
}

// mounts puts the driver's files into the root. The error names the first one
// that cannot be put there, whatever its kind: only a volume of the pod's may
// take the place of one that is not required.
func (h *hook) mounts(all []hookargs.Mount) error {
	for _, m := range all {
		err := h.root.mount(m)
		switch {
		case err == nil:
		case errors.Is(err, unix.EXDEV) && m.Kind != hookargs.MountRequired:
			h.warn("%s is left out: a volume of the pod's is mounted there", m.Path)
		case errors.Is(err, unix.EXDEV):
			return fmt.Errorf("driver file %s: a volume of the pod's is mounted there; mount the volume elsewhere", m.Path)
		default:
			return fmt.Errorf("driver file %s, of the host's %s: %w", m.Path, m.Source, err)
		}
	}
	return nil
}

// mount binds a file or directory of the host. Source and target are opened
// once, and what was opened is what is joined: a name that is exchanged
// meanwhile changes nothing.
func (r *rootfs) mount(m hookargs.Mount) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("open it on the host: %w", err)
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	if m.Kind == hookargs.MountSocket {
		attr.Attr_set = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("set the mount's options: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	target, err := r.target(m.Path, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return fmt.Errorf("open its place in the container: %w", err)
	}
	defer unix.Close(target)
	if err := unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it: %w", err)
	}
	return nil
}

// target opens the place of a mount, and makes it when there is none. A link of
// the image's in its place becomes an empty file, and what it leads to is left
// alone.
func (r *rootfs) target(p string, isDir bool) (int, error) {
	if isDir {
		return r.directory(p)
	}
	dir, err := r.directory(path.Dir(p))
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	name := path.Base(p)
	if _, err := readlinkat(dir, name); err == nil {
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return -1, err
		}
	}
	fd, err := openPlace(dir, name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	made, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return -1, err
	}
	_ = unix.Close(made)
	return openPlace(dir, name)
}

// openPlace opens whatever a file may be mounted over, without opening it.
func openPlace(dir int, name string) (int, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: within})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = unix.EISDIR
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
