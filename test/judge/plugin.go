package judge

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
)

// plugin is our device plugin, the program itself, for cards that a file
// describes.
type plugin struct {
	t         *testing.T
	dir       string
	inventory string
	inv       device.Inventory
	running   []*exec.Cmd
}

func newPlugin(t *testing.T, cards int) *plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "judge") //nolint:usetesting // short
	require.NoError(t, err)
	p := &plugin{t: t, dir: dir, inventory: filepath.Join(dir, "inventory.json")}
	p.inv.Driver = device.Driver{State: device.DriverReady, Version: fakehost.DriverVersion}
	for i := range cards {
		p.inv.GPUs = append(p.inv.GPUs, device.GPU{
			UUID: fmt.Sprintf("GPU-%d", i), Index: i, Minor: i, NUMANode: i % 2, PCIBusID: fmt.Sprintf("0000:%02x:00.0", i+1), Health: device.Health{Healthy: true},
		})
	}
	r := roots.Roots{Host: filepath.Join(dir, "host"), Dev: filepath.Join(dir, "nodes")}
	require.NoError(t, fakeroot.Make(r.Host, fakeroot.Options{Layout: "ubuntu", Version: fakehost.DriverVersion}))
	require.NoError(t, fakehost.Make(r, p.inv))
	p.write(p.inv)
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		require.NoError(t, os.RemoveAll(dir))
	})
	return p
}

// write replaces the description.
func (p *plugin) write(inv device.Inventory) {
	p.t.Helper()
	data, err := json.Marshal(inv)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(p.inventory+".new", data, 0o600))
	require.NoError(p.t, os.Rename(p.inventory+".new", p.inventory))
}

// program is the built plugin.
func program() string {
	if bin := os.Getenv("NRI_GPU_BIN"); bin != "" {
		return filepath.Join(bin, "gpu-device-plugin")
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", "gpu-device-plugin")
}

// start runs one more.
func (p *plugin) start() {
	p.t.Helper()
	in := func(name string) string { return filepath.Join(p.dir, name) }
	cmd := exec.Command(program(),
		"--inventory", p.inventory, "--host-root", in("host"), "--dev-root", in("nodes"), "--state-dir", in("state"), "--data-dir", in("data"),
		"--cdi-dir", in("cdi"), "--hook-path", program(), "--injection", "cdi", "--listen-address", "", "--discover-interval", "100ms", "--retry-interval", "100ms",
		"--health-quiet", "0s")
	log, err := os.OpenFile(in("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, cmd.Start())
	p.running = append(p.running, cmd)
}

func (p *plugin) signal(s syscall.Signal) {
	p.t.Helper()
	for _, cmd := range p.running {
		require.NoError(p.t, cmd.Process.Signal(s))
	}
}

// end ends all that run, and waits for them.
func (p *plugin) end(s syscall.Signal) {
	for _, cmd := range p.running {
		_ = cmd.Process.Signal(syscall.SIGCONT) // one that stands still would not end
		_ = cmd.Process.Signal(s)
		_ = cmd.Wait() // the signal is its status
	}
	p.running = nil
}

// endFirst ends the one that was started first.
func (p *plugin) endFirst(s syscall.Signal) {
	first := p.running[0]
	p.running = p.running[1:]
	_ = first.Process.Signal(s)
	_ = first.Wait() // the signal may be its status
}

func (p *plugin) log() string {
	data, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-3000):])
}
