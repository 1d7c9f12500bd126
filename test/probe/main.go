// Command probe looks at a container from within. "probe" prints a report as
// one line of JSON; "probe wait" does so and then waits for SIGTERM. "probe hold
// DIR" takes a lock of the host's for each card that it has, which nobody else
// may hold meanwhile, and leaves its report in the directory; with "once" behind
// it ends by itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/test/probe/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) > 2 && os.Args[1] == "hold" {
		err := hold(ctx, os.Args[2], len(os.Args) == 4 && os.Args[3] == "once")
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	err := json.NewEncoder(os.Stdout).Encode(look(ctx))
	if err == nil && len(os.Args) > 1 && os.Args[1] == "wait" {
		<-ctx.Done()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func look(ctx context.Context) report.Report {
	r := report.Report{Libraries: libraries(ctx), Dlopen: dlopen(ctx), NVML: nvml(ctx)}
	lookAtNodes(&r)
	return r
}

// lookAtNodes is the part that needs no program of the image.
func lookAtNodes(r *report.Report) {
	for _, pattern := range []string{"/dev/nvidia*", "/dev/nvidia-caps/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, p := range paths {
			if n, ok := node(p); ok {
				r.Nodes = append(r.Nodes, n)
			}
		}
	}
	for minor := range uint32(16) {
		r.Made = append(r.Made, made(minor))
	}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "NVIDIA") {
			r.Env = append(r.Env, e)
		}
	}
}

func node(path string) (report.Node, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return report.Node{}, false
	}
	return report.Node{Path: path, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev), Open: open(path)}, true
}

func open(path string) string {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return name(err)
	}
	_ = unix.Close(fd) // it was opened, which is all that is asked
	return "ok"
}

func name(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// made makes the node of a card and opens it, as a process would that wants a
// card which it was not given.
func made(minor uint32) report.Node {
	// A second probe may look at the same time.
	n := report.Node{Path: fmt.Sprintf("/tmp/made-%d-nvidia%d", os.Getpid(), minor), Major: 195, Minor: minor}
	if err := unix.Mknod(n.Path, unix.S_IFCHR|0o666, int(unix.Mkdev(n.Major, minor))); err != nil && !errors.Is(err, unix.EEXIST) {
		n.Open = "mknod: " + name(err)
		return n
	}
	n.Open = open(n.Path)
	_ = os.Remove(n.Path)
	return n
}

// output runs a program of the image, when the image has it.
func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func libraries(ctx context.Context) map[string]string {
	out, err := output(ctx, "/sbin/ldconfig", "-p")
	if err != nil {
		return map[string]string{"error": err.Error() + ": " + out}
	}
	libs := map[string]string{}
	for line := range strings.Lines(out) {
		name, path, ok := strings.Cut(strings.TrimSpace(line), " => ")
		short, _, _ := strings.Cut(name, " ")
		if !ok || (!strings.HasPrefix(short, "libcuda") && !strings.HasPrefix(short, "libnvidia")) {
			continue
		}
		if _, have := libs[short]; !have { // the machine's own architecture comes first
			libs[short] = path
		}
	}
	return libs
}

func dlopen(ctx context.Context) string {
	out, err := output(ctx, "python3", "-c", "import ctypes; ctypes.CDLL('libcuda.so.1'); print('ok')")
	if err != nil {
		lines := strings.Split(out, "\n")
		return lines[len(lines)-1] + " (" + err.Error() + ")"
	}
	return out
}

const nvmlScript = `
import pynvml
pynvml.nvmlInit()
for i in range(pynvml.nvmlDeviceGetCount()):
    u = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i))
    print(u.decode() if isinstance(u, bytes) else u)
`

func nvml(ctx context.Context) []string {
	out, err := output(ctx, "python3", "-c", nvmlScript)
	if err != nil {
		lines := strings.Split(out, "\n")
		return []string{lines[len(lines)-1]}
	}
	return strings.Fields(out)
}
