// Package hostfs reads what procfs and sysfs say about NVIDIA GPUs, below
// given roots and without the driver's library.
//
// Formats: /proc/driver/nvidia/version and gpus/*/information are written by
// the nvidia kernel module, /proc/driver/nvidia-caps/mig-minors by the same
// from R450 on; sysfs attributes are the kernel's (Documentation/ABI/testing/
// sysfs-bus-pci).
package hostfs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Card is what /proc/driver/nvidia/gpus/<bus id>/information says.
type Card struct {
	UUID, Model, PCIBusID string
	// Minor is the N of /dev/nvidiaN, -1 when the file does not say.
	Minor int
}

// DriverVersion returns the version of the loaded kernel module, from
// /sys/module/nvidia/version or /proc/driver/nvidia/version, or "" when it is
// not loaded.
func DriverVersion(r roots.Roots) string {
	if data, err := os.ReadFile(r.Sys("module", "nvidia", "version")); err == nil {
		return strings.TrimSpace(string(data))
	}
	data, err := os.ReadFile(r.Proc("driver", "nvidia", "version"))
	if err != nil {
		return ""
	}
	return parseVersion(string(data))
}

// parseVersion finds the version in a line such as "NVRM version: NVIDIA UNIX
// x86_64 Kernel Module  535.309.01  Tue ...".
func parseVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	re := regexp.MustCompile(`\s(\d+\.\d+(?:\.\d+)?)\s`)
	if m := re.FindStringSubmatch(line + " "); m != nil {
		return m[1]
	}
	return ""
}

// Cards lists the cards that the kernel module knows, sorted by bus ID.
func Cards(r roots.Roots) []Card {
	files, err := filepath.Glob(r.Proc("driver", "nvidia", "gpus", "*", "information"))
	if err != nil {
		return nil
	}
	slices.Sort(files)
	var cards []Card
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		card := parseInformation(string(data))
		if card.PCIBusID == "" {
			card.PCIBusID = NormalizeBusID(filepath.Base(filepath.Dir(f)))
		}
		cards = append(cards, card)
	}
	return cards
}

func parseInformation(text string) Card {
	card := Card{Minor: -1}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "GPU UUID":
			if !strings.Contains(value, "?") { // the module prints question marks until the card is initialised
				card.UUID = value
			}
		case "Model":
			card.Model = value
		case "Bus Location":
			card.PCIBusID = NormalizeBusID(value)
		case "Device Minor":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				card.Minor = n
			}
		}
	}
	return card
}

// NormalizeBusID returns a PCI bus ID as sysfs names it: lower case, and with a
// domain of four digits where NVML writes eight of which four are zero.
func NormalizeBusID(id string) string {
	id = strings.ToLower(strings.TrimSpace(id))
	if domain, rest, ok := strings.Cut(id, ":"); ok && len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		return domain[4:] + ":" + rest
	}
	return id
}

// HasNVIDIAGPU tells whether the PCI bus has a display controller (class 03)
// of vendor 10de, driver or not.
func HasNVIDIAGPU(r roots.Roots) bool {
	devices, err := filepath.Glob(r.Sys("bus", "pci", "devices", "*"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(devices, func(dir string) bool {
		return attribute(dir, "vendor") == "0x10de" && strings.HasPrefix(attribute(dir, "class"), "0x03")
	})
}

func attribute(dir, name string) string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// PCIClass returns the class code of a PCI device as sysfs writes it, "0x"
// and six digits, or "".
func PCIClass(r roots.Roots, busID string) string {
	return attribute(r.Sys("bus", "pci", "devices", busID), "class")
}

// NUMANode returns the node of a PCI device, or -1 when sysfs does not know.
func NUMANode(r roots.Roots, busID string) int {
	n, err := strconv.Atoi(attribute(r.Sys("bus", "pci", "devices", busID), "numa_node"))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// DRMNodes lists the nodes below /dev/dri of a PCI device: card and render
// nodes; the control nodes that old kernels list have no device node.
func DRMNodes(r roots.Roots, busID string) []string {
	entries, err := os.ReadDir(r.Sys("bus", "pci", "devices", busID, "drm"))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "card") || strings.HasPrefix(e.Name(), "renderD") {
			out = append(out, e.Name())
		}
	}
	return out
}

// BootID is the kernel's identifier of this boot, or "" when it cannot be read.
func BootID(r roots.Roots) string {
	data, err := os.ReadFile(r.Proc("sys", "kernel", "random", "boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// Instance tells one appearance of a sysfs directory from the next: a module
// that is loaded again, or a device that is found again, has another inode
// number, which kernfs does not use twice. Its times prove nothing: they are new
// whenever the inode was evicted from memory. It is "" for one that is not there.
func Instance(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(st.Ino, 36)
}
