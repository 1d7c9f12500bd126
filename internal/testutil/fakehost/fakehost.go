// Package fakehost makes the parts of a host that the NVIDIA kernel module
// would: device nodes, /proc/driver/nvidia and sysfs, for the GPUs of an
// inventory. The nodes are real character devices with no driver behind them,
// so opening one gives ENXIO where the device cgroup allows it and EPERM where
// it does not.
package fakehost

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// DriverVersion is the version that the fake machines run.
const DriverVersion = "535.309.01"

// Make fills the roots.
func Make(r roots.Roots, inv device.Inventory) error {
	files := map[string]string{
		r.Proc("driver", "nvidia", "version"): fmt.Sprintf("NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Tue Nov  4 12:00:00 UTC 2025\n", DriverVersion),
		r.Proc("devices"):                     procDevices,
		r.Sys("module", "nvidia", "version"):  DriverVersion + "\n",
	}
	minors := "config 1\nmonitor 2\n"
	for i := range inv.GPUs {
		gpu := &inv.GPUs[i]
		for path, content := range cardFiles(r, gpu) {
			files[path] = content
		}
		minors += migMinors(gpu)
	}
	files[r.Proc("driver", "nvidia-caps", "mig-minors")] = minors
	for path, content := range files {
		if err := write(path, content); err != nil {
			return err
		}
	}
	return nodes(r, inv)
}

// procDevices is /proc/devices with all of the driver's modules loaded.
const procDevices = "Character devices:\n  1 mem\n195 nvidia\n509 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n"

func cardFiles(r roots.Roots, gpu *device.GPU) map[string]string {
	pci := r.Sys("bus", "pci", "devices", gpu.PCIBusID)
	files := map[string]string{
		r.Proc("driver", "nvidia", "gpus", gpu.PCIBusID, "information"): fmt.Sprintf(
			"Model: \t\t %s\nIRQ:   \t\t 42\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
			gpu.Model, gpu.UUID, gpu.PCIBusID, gpu.Minor),
		filepath.Join(pci, "vendor"):    "0x10de\n",
		filepath.Join(pci, "class"):     "0x030200\n",
		filepath.Join(pci, "numa_node"): fmt.Sprintln(gpu.NUMANode),
	}
	for _, n := range gpu.DRMNodes {
		files[filepath.Join(pci, "drm", n, "uevent")] = "DEVNAME=dri/" + n + "\n"
	}
	return files
}

// migMinors numbers capabilities as the driver does: 9 for each GPU instance.
func migMinors(gpu *device.GPU) string {
	var b strings.Builder
	for _, m := range gpu.MIGDevices {
		base := 3 + gpu.Minor*135 + m.GPUInstance*9
		fmt.Fprintf(&b, "gpu%d/gi%d/access %d\n", gpu.Minor, m.GPUInstance, base)
		fmt.Fprintf(&b, "gpu%d/gi%d/ci%d/access %d\n", gpu.Minor, m.GPUInstance, m.ComputeInstance, base+1+m.ComputeInstance)
	}
	return b.String()
}

func nodes(r roots.Roots, inv device.Inventory) error {
	if res := devnodes.Ensure(r, inv); len(res.Problems) > 0 {
		return fmt.Errorf("make device node %s: %s", res.Problems[0].Node, res.Problems[0].Why)
	}
	return nil
}

func write(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
