package harness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cleanTimeout bounds the wait for a world's processes to be gone; they were
// killed by then.
const cleanTimeout = 20 * time.Second

// watch waits until the world's outside has ended, and cleans up after it.
func watch(dir string) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := os.WriteFile(filepath.Join(dir, "watchdog.pid"), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "watchdog:", err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the other end is closed, however
	return clean(dir)
}

// clean removes a world's cgroups and its directory.
func clean(dir string) int {
	code := 0
	roots, err := hierarchies()
	if err != nil {
		return 1
	}
	deadline := time.Now().Add(cleanTimeout)
	for _, root := range roots {
		cgroup := filepath.Join(root, filepath.Base(dir))
		for err := removeCgroups(cgroup); err != nil; err = removeCgroups(cgroup) {
			if time.Now().After(deadline) {
				fmt.Fprintf(os.Stderr, "cgroup %s is left: %v\n", cgroup, err)
				code = 1
				break
			}
			time.Sleep(50 * time.Millisecond) // a cgroup tells nobody that its last process has gone
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintf(os.Stderr, "directory %s is left: %v\n", dir, err)
		code = 1
	}
	return code
}

// removeCgroups removes a cgroup and those in it, innermost first.
func removeCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hierarchies lists the cgroup mounts of this machine that a kubelet uses: one
// with cgroup v2, one for each controller with v1.
func hierarchies() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var v1, v2 []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 3:
		case fields[2] == "cgroup":
			v1 = append(v1, fields[1])
		case fields[2] == "cgroup2":
			v2 = append(v2, fields[1])
		}
	}
	if len(v1) > 0 {
		return append(v1, v2...), nil // hybrid: v2 has no controllers, and may have been used all the same
	}
	if len(v2) == 0 {
		return nil, errors.New("no cgroup file system is mounted, and without one no container runs; mount /sys/fs/cgroup")
	}
	return v2, nil
}

// makeCgroup makes the world's cgroup in every hierarchy.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if err := prepare(root, dir); err != nil {
			return err
		}
	}
	return nil
}

// prepare enables controllers for the cgroup (v2), or gives it processors and
// memory (v1's cpuset starts without any).
func prepare(root, dir string) error {
	if controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		for c := range strings.FieldsSeq(string(controllers)) {
			for _, d := range []string{root, dir} {
				_ = os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+"+c), 0o644) // the kubelet says which one it misses
			}
		}
		return nil
	}
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(root, f))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f), data, 0o644); err != nil {
			return fmt.Errorf("give the cgroup its %s: %w", f, err)
		}
	}
	return nil
}
