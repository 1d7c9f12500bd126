// Package flock keeps a second instance of a daemon from running on a node.
package flock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// HeldError says that another process holds the lock.
type HeldError struct {
	Path string
	// PID is the holder's process ID as it wrote it, or "".
	PID string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("another instance (process %s) holds %s; stop it first, or give this one a --state-dir of its own", e.PID, e.Path)
}

// Acquire takes the lock without waiting, and returns the function that
// releases it. The kernel releases it too when the process ends, however it
// ends. The file stays: removing it would let two processes lock two files of
// one name.
func Acquire(path string) (release func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		held := &HeldError{Path: path, PID: readPID(f)}
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, held
		}
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), f.Close())
	}
	return f.Close, nil
}

func readPID(f *os.File) string {
	data, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}
