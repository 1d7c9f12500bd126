package mps

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On a host whose mounts are shared, as systemd has them, what a daemon has at
// /dev/shm stays its own.
func TestTheHostKeepsItsSharedMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	shm := t.TempDir()
	var before, after []byte
	failed := make(chan error)
	onOwnThread(func() { failed <- b.onSharedHost(shm, &before, &after) })
	require.NoError(t, <-failed)
	require.NotEmpty(t, before)
	require.Equal(t, string(before), string(after))
}

// onSharedHost reads the mounts of a host of its own before and after a daemon
// is given its shared memory.
func (b *bench) onSharedHost(shm string, before, after *[]byte) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	// Somebody who stays there.
	host := exec.Command(b.fake.Server())
	if err := host.Start(); err != nil {
		return err
	}
	defer func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	}()
	mounts := filepath.Join("/proc", fmt.Sprint(host.Process.Pid), "mountinfo")
	var err error
	if *before, err = os.ReadFile(mounts); err != nil {
		return err
	}
	if err := privateShm(shm); err != nil {
		return err
	}
	own, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil || !bytes.Contains(own, []byte(filepath.Base(shm)+" "+devShm+" ")) {
		return fmt.Errorf("%q is not mounted at %s: %w", shm, devShm, err)
	}
	*after, err = os.ReadFile(mounts)
	return err
}
