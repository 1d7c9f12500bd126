// Package flock keeps a second instance of a daemon from running on a node.
package flock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
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

// Lock is a lock that is held. The kernel releases it when the process ends,
// however it ends.
type Lock struct {
	path string
	mu   sync.Mutex
	file *os.File
}

const (
	// retry is how often a lock that is held is tried again; flock(2) can be
	// waited for, and the wait then not be ended.
	retry = 50 * time.Millisecond
	// look is how often a held lock's file is looked at.
	look = 2 * time.Second
)

// Wait takes the lock, and waits for another instance to end for as long as
// patience: in a rolling update the old one ends while the new one starts.
func Wait(ctx context.Context, path string, patience time.Duration, log logrus.FieldLogger) (*Lock, error) {
	deadline := time.Now().Add(patience)
	for told := false; ; told = true {
		l, err := Acquire(path)
		var held *HeldError
		if err == nil || !errors.As(err, &held) || time.Now().After(deadline) {
			return l, err
		}
		if !told {
			log.Infof("waiting up to %s for another instance (process %s) to end", patience, held.PID)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retry):
		}
	}
}

// Acquire takes the lock without waiting. The file stays when the lock is
// released: removing it would let two processes lock two files of one name.
func Acquire(path string) (*Lock, error) {
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
	return &Lock{path: path, file: f}, nil
}

// Release gives the lock back.
func (l *Lock) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// Keep sees to it, until ctx ends, that the file that others would lock is the
// one that is locked: a directory below /run may be emptied under a running
// daemon. The error says that another instance was faster.
func (l *Lock) Keep(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if l.current() {
			continue
		}
		renewed, err := Acquire(l.path)
		var held *HeldError
		if errors.As(err, &held) {
			return fmt.Errorf("the lock's file was removed, and taken by another: %w", err)
		}
		if err != nil {
			continue // the directory cannot be written now; look again
		}
		l.mu.Lock()
		old := l.file
		l.file = renewed.file
		l.mu.Unlock()
		_ = old.Close() // it locked a file without a name
	}
}

// current tells whether the path still is the file that is locked.
func (l *Lock) current() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ours, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.path)
	return err == nil && os.SameFile(ours, there)
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
