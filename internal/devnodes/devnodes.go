// Package devnodes makes the device nodes that a container with a GPU needs.
//
// The kernel module creates none of them by itself: nvidia-modprobe or the
// first CUDA process does, often later than the first pod. Numbers come from
// the running kernel (/proc/devices), never from a file that was written
// before; a node that an earlier load of the module left with other numbers is
// replaced. For every node there is also a link /dev/char/MAJOR:MINOR
// (link.go): without it systemd takes the card from running containers.
package devnodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Fixed minors of the nvidia character device (nvidia-modprobe-utils.h).
const (
	minorControl = 255
	minorModeset = 254
)

// The control nodes.
const (
	Control  = "/dev/nvidiactl"
	Modeset  = "/dev/nvidia-modeset"
	UVM      = "/dev/nvidia-uvm"
	UVMTools = "/dev/nvidia-uvm-tools"
)

// GPU is the node of a card, by its minor.
func GPU(minor int) string { return fmt.Sprintf("/dev/nvidia%d", minor) }

// Capability is the node of a MIG capability, by its minor.
func Capability(minor int) string { return fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor) }

// Problem is a node that is not there and could not be made.
type Problem struct {
	// Node is the path that a container would see.
	Node string `json:"node"`
	// Why says why, and what to do.
	Why string `json:"why"`
}

// Result is what Ensure did.
type Result struct {
	Created  []string
	Problems []Problem
}

type node struct {
	path   string
	driver string // name in /proc/devices
	minor  int
	mode   uint32
}

// Ensure makes the nodes of an inventory that are missing below the dev root or
// have numbers of another load of the module, and the links in /dev/char. A node
// that is right is left as it is, whoever made it.
func Ensure(r roots.Roots, inv device.Inventory) Result {
	majors := readMajors(r)
	var res Result
	for _, n := range wanted(inv) {
		created, why := ensure(r, majors, n)
		if created {
			res.Created = append(res.Created, n.path)
		}
		if why != "" {
			res.Problems = append(res.Problems, Problem{Node: n.path, Why: why})
		}
	}
	return res
}

func wanted(inv device.Inventory) []node {
	nodes := []node{
		{Control, "nvidia", minorControl, 0o666},
		{Modeset, "nvidia", minorModeset, 0o666},
		{UVM, "nvidia-uvm", 0, 0o666},
		{UVMTools, "nvidia-uvm", 1, 0o666},
	}
	for i := range inv.GPUs {
		gpu := &inv.GPUs[i]
		if gpu.Minor >= 0 {
			nodes = append(nodes, node{GPU(gpu.Minor), "nvidia", gpu.Minor, 0o666})
		}
		for _, m := range gpu.MIGDevices {
			for _, minor := range []int{m.GPUInstanceMinor, m.ComputeInstanceMinor} {
				if minor >= 0 {
					nodes = append(nodes, node{Capability(minor), "nvidia-caps", minor, 0o444})
				}
			}
		}
	}
	return nodes
}

func ensure(r roots.Roots, majors Majors, n node) (created bool, why string) {
	path := r.DevPath(n.path)
	major, loaded := majors.of(n.driver)
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return false, fmt.Sprintf("%s is not a character device; remove it", path)
	case err == nil && (!loaded || st.Rdev == unix.Mkdev(major, uint32(n.minor))):
		return false, link(r, path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Sprintf("%s: %v", path, err)
	case !loaded:
		return false, fmt.Sprintf("it does not exist, and the kernel module that owns it (%s) is not loaded; load it with `modprobe %s`", n.driver, module(n.driver))
	}
	if err := mknod(path, major, n); err != nil {
		return false, fmt.Sprintf("it does not exist, or has numbers of another load of the module, and cannot be made: %v", err)
	}
	return true, link(r, path)
}

func module(driver string) string {
	if driver == "nvidia-uvm" {
		return driver
	}
	return "nvidia"
}

// mknod makes a node whole before it has its name, in the place of one that may
// be there.
func mknod(path string, major uint32, n node) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	draft := draftOf(path)
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(draft, unix.S_IFCHR|n.mode, int(unix.Mkdev(major, uint32(n.minor)))); err != nil {
		return err
	}
	if err := os.Chmod(draft, fs.FileMode(n.mode)); err != nil { // mknod applies the umask
		return err
	}
	return os.Rename(draft, path)
}

// draftOf is the name that a node or link has until it is whole. It starts with
// a dot, so that no pattern of device names finds it.
func draftOf(path string) string {
	return filepath.Join(filepath.Dir(path), ".nri-gpu-"+filepath.Base(path))
}

// Majors maps a character driver's name in /proc/devices to its major.
type Majors map[string]uint32

func readMajors(r roots.Roots) Majors {
	data, err := os.ReadFile(r.Proc("devices"))
	if err != nil {
		return nil
	}
	return ParseMajors(string(data))
}

// ParseMajors reads the character section of /proc/devices.
func ParseMajors(text string) Majors {
	m := Majors{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Block devices") {
			break
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(fields[0], 10, 12); err == nil { // a Linux major has 12 bits
			m[fields[1]] = uint32(n)
		}
	}
	return m
}

// of knows the name that older modules registered, "nvidia-frontend".
func (m Majors) of(driver string) (uint32, bool) {
	n, ok := m[driver]
	if !ok && driver == "nvidia" {
		n, ok = m["nvidia-frontend"]
	}
	return n, ok
}
