package harness

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MakeDir makes a directory that every user may write to.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777) // whatever the umask
}

// MountsBelow lists the mount points of this world below a directory.
func MountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			out = append(out, "mount "+fields[4])
		}
	}
	return out
}

// Process numbers by their parent's, and what each is called.
type processTree struct {
	children map[string][]string
	names    map[string]string
}

func readProcesses() processTree {
	t := processTree{children: map[string][]string{}, names: map[string]string{}}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return t
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state ppid …", proc(5); a name may hold anything.
		text := string(data)
		open, closing := strings.Index(text, "("), strings.LastIndex(text, ")")
		fields := strings.Fields(text[closing+1:])
		if open < 0 || len(fields) < 2 {
			continue
		}
		pid, parent := strings.TrimSpace(text[:open]), fields[1]
		t.names[pid] = text[open+1 : closing]
		t.children[parent] = append(t.children[parent], pid)
	}
	return t
}

// Shims lists the runtime's shims of this world, each with the names of the
// processes below it.
func Shims() map[string][]string {
	t, out := readProcesses(), map[string][]string{}
	for pid, name := range t.names {
		if strings.HasPrefix(name, "containerd-shim") {
			out[pid] = t.below(pid)
		}
	}
	return out
}

func (t processTree) below(pid string) []string {
	out := []string{}
	for _, child := range t.children[pid] {
		out = append(append(out, t.names[child]), t.below(child)...)
	}
	return out
}

// Descriptors counts the open files of the program.
func (p *Process) Descriptors() int {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// Answers tells whether an URL answers 200 within a short time, and what it
// says.
func Answers(ctx context.Context, url string) (ok bool, text string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := get(url)(ctx); err != nil {
		return false, err.Error()
	}
	return true, http.StatusText(http.StatusOK)
}
