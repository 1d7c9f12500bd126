package specgen_test

import "golang.org/x/sys/unix"

// mknod makes a character device without a driver.
func mknod(path string) error {
	return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(236, 0)))
}
