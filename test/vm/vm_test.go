//go:build e2e

package vm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limit bounds all of the machine's life. Under emulation on two cores it takes
// some minutes.
const limit = 25 * time.Minute

func TestVM(t *testing.T) {
	require.Zero(t, os.Geteuid(), "device nodes are packed into the machine's disk, which needs root")
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	cache := os.Getenv("NRI_GPU_CACHE")
	if cache == "" {
		cache = filepath.Join(top, ".cache")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	build := exec.CommandContext(ctx, filepath.Join(top, "hack/build-vm.sh"))
	build.Stderr = os.Stderr
	dir, err := build.Output()
	require.NoError(t, err)
	dir = bytes.TrimSpace(dir)
	m := boot(ctx, t, string(dir), payload(t, top, cache, string(dir)))
	r := &reporter{lines: bufio.NewScanner(m.tests)}
	r.run(t)
	err = m.wait() // in every case: the machine is gone after this
	if ctx.Err() != nil {
		err = fmt.Errorf("the machine did not end within %s", limit)
	}
	if t.Failed() || err != nil || len(r.boots) == 0 {
		t.Logf("the end of the console:\n%s", tail(t, m.console))
	}
	require.NoError(t, err)
	require.Equal(t, []string{"boot 1 ended with status 0", "boot 2 ended with status 0"}, r.boots)
}

// reporter reads what the guest's tests print, and reports each scenario as a
// test of the host's.
type reporter struct {
	lines *bufio.Scanner
	// boots are the last words of each boot.
	boots []string
}

var (
	begins = regexp.MustCompile(`^=== RUN\s+TestBoot(\d+)/([^/]+)$`)
	ends   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): TestBoot(\d+)/([^/]+) \(`)
)

// marker is what package testing puts before its own lines when it prints for
// test2json; only then does it print the end of a subtest at once.
const marker = "\x16"

func (r *reporter) next() (string, bool) {
	if !r.lines.Scan() {
		return "", false
	}
	return strings.TrimLeft(strings.TrimRight(r.lines.Text(), "\r\n"), marker), true
}

func (r *reporter) run(t *testing.T) {
	t.Helper()
	for line, ok := r.next(); ok; line, ok = r.next() {
		switch begin := begins.FindStringSubmatch(line); {
		case begin != nil:
			t.Run("boot"+begin[1]+"/"+begin[2], func(t *testing.T) { r.scenario(t, begin[2]) })
		case strings.HasPrefix(line, "boot "):
			r.boots = append(r.boots, line)
		case !strings.HasPrefix(line, "=== "):
			t.Log(line)
		}
	}
}

// scenario passes on what one scenario prints, until it ends.
func (r *reporter) scenario(t *testing.T, name string) {
	t.Helper()
	for line, ok := r.next(); ok; line, ok = r.next() {
		if end := ends.FindStringSubmatch(line); end != nil && end[3] == name {
			if end[1] != "PASS" {
				t.Fail()
			}
			return
		}
		if !strings.HasPrefix(line, "=== ") {
			t.Log(line)
		}
	}
	t.Error("the machine ended before the scenario did")
}

func tail(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
