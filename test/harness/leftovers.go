package harness

import (
	"context"
	"fmt"
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

// ProcessesNamed lists the processes of this world whose name starts so.
func ProcessesNamed(prefix string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(data), prefix) {
			out = append(out, fmt.Sprintf("process %s %s", filepath.Base(filepath.Dir(f)), strings.TrimSpace(string(data))))
		}
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
