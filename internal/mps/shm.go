package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// mountShm mounts the tmpfs for shared memory, unless it is there. A tmpfs of
// its own keeps a pod from filling the host's /run, or reading its /dev/shm.
func (c *Config) mountShm() error {
	c.mounting.Lock()
	defer c.mounting.Unlock()
	dir := c.ownShm()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory for shared memory of MPS: %w", err)
	}
	mounted, err := isMounted(dir, c.Root)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("nri-gpu-mps", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=50%"); err != nil {
		return fmt.Errorf("mount the shared memory of MPS at %q: %w; run as root with CAP_SYS_ADMIN, or have a directory for it made and configured", dir, err)
	}
	return nil
}

// unmountShm ends what mountShm, of this run or an earlier one, began.
func (c *Config) unmountShm() error {
	dir := c.ownShm()
	if dir == "" {
		return nil
	}
	mounted, err := isMounted(dir, c.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && mounted {
		// Detached, since the copy in the mount namespace of a process that is just
		// ending would keep it busy. What is in use lives on until it is not.
		err = unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil {
		return fmt.Errorf("unmount %q: %w", dir, err)
	}
	return nil
}

func isMounted(dir, parent string) (bool, error) {
	var a, b unix.Stat_t
	for path, st := range map[string]*unix.Stat_t{dir: &a, parent: &b} {
		if err := unix.Stat(path, st); err != nil {
			return false, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
	return a.Dev != b.Dev, nil
}

// privateShm gives this thread a mount namespace in which shm is at /dev/shm.
// The caller has the thread for itself, and lets it end.
func privateShm(shm string) error {
	if shm == devShm {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w; run as root with CAP_SYS_ADMIN, or have %s shared", err, devShm)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts of a daemon from the host: %w", err)
	}
	if err := unix.Mount(shm, devShm, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %q at %s: %w", shm, devShm, err)
	}
	return nil
}
