//go:build e2e

// Package guest is what runs inside the virtual machine of test/vm. TestBoot1 is
// run at its first boot and TestBoot2 after a reboot; each is a row of scenarios
// that build on one another.
package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// patience bounds whatever is waited for; emulation is slow.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if _, err := os.Stat(layout.Payload); err != nil {
		panic(fmt.Errorf("these tests change the machine that they run on, and run in the virtual machine of test/vm only: %w", err))
	}
	m.Run()
}

// guest is the test of one scenario.
type guest struct{ *testing.T }

// scenario is one of a row.
type scenario struct {
	name string
	run  func(guest)
}

// scenarios runs a row until one fails.
func scenarios(t *testing.T, row []scenario) {
	t.Helper()
	for _, s := range row {
		ok := t.Run(s.name, func(t *testing.T) {
			explain(t)
			s.run(guest{t})
		})
		require.True(t, ok, "the scenarios after this one build on it")
	}
}

// at is a path of the payload.
func at(elem ...string) string {
	return filepath.Join(append([]string{layout.Payload}, elem...)...)
}

// sh runs a command and returns what it prints.
func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), name, args...)
	require.NoError(t, err)
	return out
}

func try(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// eventually asks until there is no error.
func eventually(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	var last error
	for {
		err := ok(ctx)
		if err == nil {
			t.Logf("%s after %.1f s", what, time.Since(begin).Seconds())
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			require.NoError(t, last, "%s: not within %s", what, patience)
			return
		case <-tick.C:
		}
	}
}

// explain logs what our services, containerd and the kubelet said, when the
// test has failed.
func explain(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, u := range []string{nriUnit, pluginUnit, "containerd", "kubelet"} {
			out, err := try(context.Background(), "journalctl", "--no-pager", "-o", "cat", "-n", "25", "-u", u)
			t.Logf("journal of %s: %v\n%s", u, err, out)
		}
	})
}
