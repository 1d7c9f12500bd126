package mps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// proc is this process' own: only there the numbers are those that can be
// signalled.
const proc = "/proc"

// killMarked kills the processes that belong to a daemon with its directory at
// or below dir: the daemon of a predecessor, and servers that outlive theirs.
// It waits for their end.
func killMarked(dir string, atMost time.Duration) error {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return fmt.Errorf("look for processes of MPS: %w", err)
	}
	deadline := time.Now().Add(atMost)
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !marked(pid, dir) {
			continue
		}
		if err := killOne(pid, dir, time.Until(deadline)); err != nil {
			errs = append(errs, fmt.Errorf("end process %d of MPS: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// marked tells whether a process has the marker of a daemon at or below dir.
func marked(pid int, dir string) bool {
	environ, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return false // it has ended, or is none of ours
	}
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if of, ok := strings.CutPrefix(string(v), marker+"="); ok && (of == dir || strings.HasPrefix(of, dir+"/")) {
			return true
		}
	}
	return false
}

// killOne kills a process by a descriptor, so that a number that was given away
// anew hits nobody else.
func killOne(pid int, dir string, atMost time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !marked(pid, dir) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return waitFd(fd, atMost)
}

// waitFd waits until the process of a descriptor has ended.
func waitFd(fd int, atMost time.Duration) error {
	deadline := time.Now().Add(atMost)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("it has not ended within %s of being killed: it hangs in the driver", atMost)
		}
		return nil
	}
}
