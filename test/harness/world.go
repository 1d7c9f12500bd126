package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Environment of the program's further selves.
const (
	envStage    = "NRI_GPU_WORLD_STAGE"
	envDir      = "NRI_GPU_WORLD_DIR"
	stageInit   = "init"
	stageInside = "inside"
	stageWatch  = "watch"
	dirPrefix   = "nri-gpu-e2e-"
)

// NodeAddress is the node's address in its world.
const NodeAddress = "10.66.0.1"

// World is the place that a program runs in after Enter.
type World struct {
	// Dir is the working directory: short, and gone afterwards.
	Dir string
	// Cgroup is the name of the cgroup, below the root of each hierarchy, in
	// which everything that the kubelet starts lies.
	Cgroup string
}

// Enter returns a World to the innermost self of the program. The others run
// it, and end within Enter with its exit status. Call it first in main or
// TestMain.
func Enter() (*World, error) {
	switch os.Getenv(envStage) {
	case "":
		code, err := outside()
		if err != nil {
			return nil, err
		}
		exit(code)
	case stageWatch:
		exit(watch(os.Getenv(envDir)))
	case stageInit:
		code, err := pid1(os.Getenv(envDir))
		if err != nil {
			fmt.Fprintln(os.Stderr, "make the world:", err)
			code = 1
		}
		exit(code)
	}
	dir := os.Getenv(envDir)
	for _, v := range []string{envStage, envDir} {
		if err := os.Unsetenv(v); err != nil {
			return nil, err
		}
	}
	return &World{Dir: dir, Cgroup: filepath.Base(dir)}, nil
}

// exit ends a self that has no main of its own to return to.
func exit(code int) {
	os.Exit(code) //nolint:forbidigo // this process exists only to start another and to pass its status on
}

// outside starts the watchdog and the world, and waits for both.
func outside() (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("the real stack needs root: device nodes, mounts and cgroups; run this as root")
	}
	if _, err := hierarchies(); err != nil {
		return 1, err
	}
	cleanDead()
	dir, err := os.MkdirTemp("/tmp", dirPrefix)
	if err != nil {
		return 1, err
	}
	watchdog, hold, err := startWatchdog(dir)
	if err != nil {
		return 1, err
	}
	code, err := runInit(dir)
	// The watchdog does its work when this end of its pipe is closed, by us or
	// by the kernel.
	if closeErr := hold.Close(); closeErr != nil {
		return 1, closeErr
	}
	if waitErr := watchdog.Wait(); waitErr != nil {
		return 1, fmt.Errorf("clean up: %w", waitErr)
	}
	return code, err
}

// self runs this program again, as another stage.
func self(stage, dir string, args []string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), envStage+"="+stage, envDir+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, nil
}

func startWatchdog(dir string) (*exec.Cmd, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	cmd, err := self(stageWatch, dir, nil)
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal of the terminal reaches it
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return cmd, w, nil
}

// runInit starts the world's first process. It dies with us, and all of the
// world with it.
func runInit(dir string) (int, error) {
	cmd, err := self(stageInit, dir, os.Args[1:])
	if err != nil {
		return 1, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("make namespaces: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it has ended by itself then
		case err := <-done:
			var status *exec.ExitError
			if errors.As(err, &status) {
				return status.ExitCode(), nil
			}
			return 0, err
		}
	}
}

// pid1 furnishes the world, starts the program in it, and reaps orphans until
// the program ends.
func pid1(dir string) (int, error) {
	if err := furnish(dir); err != nil {
		return 1, err
	}
	cmd, err := self(stageInside, dir, os.Args[1:])
	if err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it has ended by itself then
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, err
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == cmd.Process.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// furnish mounts what the world has for itself, and gives it a network: the
// kubelet wants an address that is not the loopback's, and a default route.
func furnish(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := privateRun(dir); err != nil {
		return fmt.Errorf("mount a private /run: %w", err)
	}
	for _, d := range []string{"/var/lib", "/var/log"} {
		if err := private(dir, d); err != nil {
			return err
		}
	}
	for _, d := range []string{"/var/lib/kubelet", "/var/lib/nri-gpu"} {
		if err := empty(d); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "node0", "type", "veth", "peer", "name", "node1"}, // not every kernel has dummy devices
		{"link", "set", "node1", "up"},
		{"addr", "add", NodeAddress + "/24", "dev", "node0"},
		{"link", "set", "node0", "up"},
		{"route", "add", "default", "dev", "node0"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return names(dir)
}

// NodeName is the host name in the world, and the node's.
const NodeName = "gpu-node"

// names makes the node's own name one that resolves: nobody answers DNS here,
// and the kubelet waits ten seconds for every answer that does not come.
func names(dir string) error {
	for target, content := range map[string]string{
		"/etc/hosts":       "127.0.0.1 localhost\n" + NodeAddress + " " + NodeName + "\n",
		"/etc/resolv.conf": "nameserver 127.0.0.1\n",
	} {
		file := filepath.Join(dir, filepath.Base(target))
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return unix.Sethostname([]byte(NodeName))
}

// privateRun hides what runs on the machine, but for what a real driver has
// there: a driver container's root, and the sockets of its daemons.
func privateRun(dir string) error {
	old := filepath.Join(dir, "run")
	if err := os.Mkdir(old, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/run", old, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	kept, err := filepath.Glob(filepath.Join(old, "nvidia*"))
	if err != nil {
		return err
	}
	for _, from := range kept {
		to := filepath.Join("/run", filepath.Base(from))
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	return unix.Unmount(old, unix.MNT_DETACH)
}

// private makes changes below a directory of the machine the world's alone: the
// kubelet's device plugin directory and its links to logs have constant paths.
func private(dir, target string) error {
	layers := filepath.Join(dir, "private", filepath.Base(target))
	upper, work := filepath.Join(layers, "upper"), filepath.Join(layers, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", target, upper, work)
	if err := unix.Mount("overlay", target, "overlay", 0, data); err != nil {
		return fmt.Errorf("mount a private %s: %w", target, err)
	}
	return nil
}

// empty hides what a directory has.
func empty(target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

// cleanDead removes what worlds left whose watchdog was killed too.
func cleanDead() {
	dirs, err := filepath.Glob("/tmp/" + dirPrefix + "*")
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if data, err := os.ReadFile(filepath.Join(dir, "watchdog.pid")); err == nil && alive(strings.TrimSpace(string(data))) {
			continue
		}
		if code := clean(dir); code != 0 {
			fmt.Fprintln(os.Stderr, "could not remove what an earlier run left:", dir)
		}
	}
}

// alive tells whether a process exists and is one of ours.
func alive(pid string) bool {
	if _, err := strconv.Atoi(pid); err != nil {
		return false
	}
	env, err := os.ReadFile("/proc/" + pid + "/environ")
	return err == nil && strings.Contains(string(env), envStage+"="+stageWatch)
}
