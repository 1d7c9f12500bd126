//go:build e2e

package vm

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// machine is a running virtual machine.
type machine struct {
	// tests is what the guest's tests print; it ends with the machine.
	tests io.Reader
	// console is the file with the kernel's and systemd's messages.
	console string
	wait    func() error
}

// boot starts a machine that ends with ctx at the latest, and with the test. Its
// disk is not changed: what it writes goes into a file that qemu has removed.
func boot(ctx context.Context, t *testing.T, dir, payload string) *machine {
	t.Helper()
	m := &machine{console: filepath.Join(t.TempDir(), "console.log")}
	file := func(name string) string { return filepath.Join(dir, name) }
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		// KVM is not asked for even where there is one: the machine shall be the
		// same everywhere.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3072", "-display", "none", "-nodefaults", "-net", "none",
		"-kernel", file("vmlinuz"), "-initrd", file("initrd.img"),
		"-append", "root=/dev/vda rw console=ttyS0 quiet systemd.getty_auto=no systemd.mask=apt-daily.timer systemd.mask=e2scrub_all.timer",
		"-drive", "if=virtio,format=raw,snapshot=on,file="+file("disk.img"),
		"-drive", "if=virtio,format=raw,readonly=on,file="+payload,
		"-serial", "file:"+m.console, "-serial", "stdio",
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "start the virtual machine; hack/install-deps.sh test installs qemu")
	m.tests, m.wait = out, cmd.Wait
	return m
}
