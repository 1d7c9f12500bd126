//go:build e2e

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// Our services.
const (
	nriUnit    = "nri-gpu"
	pluginUnit = "gpu-device-plugin"
)

// Versions of the driver.
const (
	oldDriver = "535.309.01"
	newDriver = "550.163.01"
)

// libraries is where Debian's packages have the driver.
const libraries = "/usr/lib/x86_64-linux-gnu/nvidia/current"

// migCard is the card that has MIG devices, when there are some.
const migCard = 2

// installDriver puts a driver's user space where Debian has it, and takes the
// one before away. The module that runs stays.
func installDriver(t *testing.T, version string, mig ...any) {
	t.Helper()
	removeLibraries(t)
	require.NoError(t, fakeroot.Make("/", fakeroot.Options{Layout: "debian", Version: version, NVML: at(layout.NVML)}))
	machine, err := fakelib.Read(at(layout.Machine))
	require.NoError(t, err)
	machine["driver_version"], machine["kernel"] = version, 1
	if len(mig) > 0 {
		machine.Device(migCard)["mig_enabled"], machine.Device(migCard)["mig"] = 1, mig
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(harness.InsideConfigPath), 0o755))
	require.NoError(t, machine.Write(harness.InsideConfigPath))
	// A node loads its driver at boot.
	release := sh(t, "uname", "-r")
	module := filepath.Join("/lib/modules", release, "updates", "nvidia.ko")
	require.NoError(t, os.MkdirAll(filepath.Dir(module), 0o755))
	data, err := os.ReadFile(at(layout.Module))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(module, data, 0o644))
	sh(t, "depmod", "-a")
	require.NoError(t, os.WriteFile("/etc/modprobe.d/nvidia.conf", []byte("options nvidia version="+version+"\n"), 0o644))
	require.NoError(t, os.WriteFile("/etc/modules-load.d/nvidia.conf", []byte("nvidia\n"), 0o644))
}

// removeLibraries removes every file and link of a driver.
func removeLibraries(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(libraries))
	links := filepath.Dir(filepath.Dir(libraries))
	entries, err := os.ReadDir(links)
	require.NoError(t, err)
	for _, e := range entries {
		path := filepath.Join(links, e.Name())
		if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, libraries) {
			require.NoError(t, os.Remove(path))
		}
	}
}

func loadDriver(t *testing.T, options ...string) {
	t.Helper()
	sh(t, "modprobe", append([]string{"nvidia"}, options...)...)
	require.FileExists(t, "/proc/driver/nvidia/version")
}

// unloadDriver returns when the device plugin has seen it: what it published of
// the driver before would pass for what it publishes of the next one.
func unloadDriver(t *testing.T) {
	t.Helper()
	sh(t, "rmmod", "nvidia")
	_, err := os.Stat("/proc/driver/nvidia/version")
	require.ErrorIs(t, err, fs.ErrNotExist)
	saying(t, notLoaded)
}

// service is what systemd says of a unit.
func service(ctx context.Context, unit, property string) (string, error) {
	return try(ctx, "systemctl", "show", "--value", "-p", property, unit)
}

// processes are the main processes of our services, which must live on.
func processes(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, u := range []string{nriUnit, pluginUnit} {
		active, err := service(t.Context(), u, "ActiveState")
		require.NoError(t, err)
		require.Equal(t, "active", active, u)
		pid, err := service(t.Context(), u, "MainPID")
		require.NoError(t, err)
		restarts, err := service(t.Context(), u, "NRestarts")
		require.NoError(t, err)
		out[u] = pid + ", restarted " + restarts + " times"
	}
	return out
}

// served waits until the machine's eight cards are published with a version of
// the driver, and nri-gpu is ready to inject them.
func served(t *testing.T, version string) {
	t.Helper()
	eventually(t, "driver "+version+" is served", func(ctx context.Context) error {
		data, err := os.ReadFile(state.Dir("/run/nri-gpu").Inventory())
		if err != nil {
			return err
		}
		var inv device.Inventory
		if err := json.Unmarshal(data, &inv); err != nil {
			return err
		}
		if inv.Driver.State != device.DriverReady || inv.Driver.Version != version || len(inv.GPUs) != 8 {
			return fmt.Errorf("the inventory has %d cards and the driver %+v", len(inv.GPUs), inv.Driver)
		}
		for i := range inv.GPUs {
			if h := inv.GPUs[i].Health; !h.Healthy {
				return fmt.Errorf("card %d: %s", i, h.Reason)
			}
		}
		text, err := harness.Body(ctx, "http://"+harness.NRIAddress+"/readyz")
		if err == nil && strings.TrimSpace(text) != "ok" {
			err = errors.New("nri-gpu says: " + text)
		}
		if err != nil {
			return err
		}
		return guarded(&inv)
	})
}

// guarded tells whether the names that an inventory serves are those that the
// runtime finds.
func guarded(inv *device.Inventory) error {
	var want []string
	for i := range inv.GPUs {
		if !inv.GPUs[i].MIGEnabled {
			want = append(want, inv.GPUs[i].UUID)
		}
		for _, m := range inv.GPUs[i].MIGDevices {
			want = append(want, m.UUID)
		}
	}
	data, err := os.ReadFile(filepath.Join("/run/cdi", cdi.SpecFileName(cdi.KindGPU)))
	if err != nil {
		return err
	}
	for _, name := range want {
		if !strings.Contains(string(data), `"`+name+`"`) {
			return fmt.Errorf("the guard spec does not have %s", name)
		}
	}
	return nil
}

// saying waits until the device plugin gives a reason for not being ready.
func saying(t *testing.T, reason string) {
	t.Helper()
	eventually(t, "the device plugin says: "+reason, func(ctx context.Context) error {
		text, err := harness.Body(ctx, "http://"+harness.PluginAddress+"/readyz")
		if err == nil && !strings.Contains(text, reason) {
			err = errors.New("it says: " + text)
		}
		return err
	})
}
