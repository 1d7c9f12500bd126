package judge

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const envInside = "NRI_GPU_JUDGE_INSIDE"

// pluginDir is the kubelet's constant.
const pluginDir = "/var/lib/kubelet/device-plugins"

// Main runs the tests in a mount namespace of their own.
func Main(m *testing.M) {
	if os.Getenv(envInside) != "" {
		if err := enter(); err != nil {
			panic(err)
		}
		m.Run()
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envInside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err, "(a mount namespace needs root)")
		os.Exit(1) //nolint:forbidigo // this process only passes the status of its child on
	}
}

func enter() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a /var/lib: %w", err)
	}
	return os.MkdirAll(pluginDir, 0o750)
}
