package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakehost"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakeroot"
)

// Addresses at which the daemons say how they are.
const (
	NRIAddress    = "127.0.0.1:8470"
	PluginAddress = "127.0.0.1:8471"
)

// GPUNode is a node with GPUs, real or simulated, and our daemons on it.
type GPUNode struct {
	World *World
	// Bin is where our programs lie.
	Bin string
	// Roots are empty of their own for real GPUs.
	Roots roots.Roots
	// Config is the fake NVML's file; empty for real GPUs.
	Config string
	// Resource is what pods ask for.
	Resource string
	State    state.Dir
	// Version is the driver's, where the fake library is to say another than its
	// own.
	Version string
	NRI     *Process
	Plugin  *Process
}

// NewGPUNode simulates a machine of test/fakenvml: device nodes without a
// driver behind them, a driver root of empty libraries in Ubuntu's layout, and
// the fake library as the driver's own.
func NewGPUNode(w *World, bin, profile string) (*GPUNode, error) {
	n, err := newNode(w, bin, profile)
	if err != nil {
		return nil, err
	}
	return n, fakeroot.Make(n.Roots.Driver, fakeroot.Options{
		Layout: "ubuntu", Version: fakehost.DriverVersion, NVML: filepath.Join(bin, "test", "libnvidia-ml.so.1"),
	})
}

// NewDriverNode simulates a machine as NewGPUNode does, with the user space of a
// real driver, as a package has it: in the directory driver, with the fake
// library mounted over its NVML in this world.
func NewDriverNode(w *World, bin, profile, driver string) (*GPUNode, error) {
	n, err := newNode(w, bin, profile)
	if err != nil {
		return nil, err
	}
	const stem = "libnvidia-ml.so."
	files, err := filepath.Glob(filepath.Join(driver, "usr/lib/x86_64-linux-gnu/nvidia/current", stem+"*.*"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("the driver's user space in %s has %d files %s*; run hack/fetch-driver.sh", driver, len(files), stem)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Mount(filepath.Join(bin, "test", "libnvidia-ml.so.1"), files[0], "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("mount the fake library over %s: %w", files[0], err)
	}
	n.Roots.Driver, n.Version = driver, strings.TrimPrefix(filepath.Base(files[0]), stem)
	return n, os.WriteFile(n.Roots.Sys("module", "nvidia", "version"), []byte(n.Version+"\n"), 0o644)
}

func newNode(w *World, bin, profile string) (*GPUNode, error) {
	n := &GPUNode{
		World: w, Bin: bin, Resource: "nvidia.com/gpu", State: "/run/nri-gpu",
		Roots:  roots.Roots{Driver: filepath.Join(w.Dir, "driver"), Dev: filepath.Join(w.Dir, "nodes"), Host: filepath.Join(w.Dir, "host")},
		Config: filepath.Join(w.Dir, "fake-nvml.json"),
	}
	// The directory may lie on a file system that allows no device nodes.
	if err := os.MkdirAll(n.Roots.Dev, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", n.Roots.Dev, "tmpfs", 0, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount a place for device nodes: %w", err)
	}
	config, err := fakelib.Load(profile)
	if err != nil {
		return nil, err
	}
	if err := n.Configure(config); err != nil {
		return nil, err
	}
	return n, fakehost.Make(n.Roots, inventory(config))
}

// SmallState puts the state directory on a file system of a few megabytes.
func (n *GPUNode) SmallState() error {
	if err := os.MkdirAll(string(n.State), 0o755); err != nil {
		return err
	}
	return unix.Mount("tmpfs", string(n.State), "tmpfs", 0, "size=4m,mode=755")
}

// RealGPUNode is this machine with its own GPUs.
func RealGPUNode(w *World, bin string) *GPUNode {
	return &GPUNode{World: w, Bin: bin, Resource: "nvidia.com/gpu", State: "/run/nri-gpu"}
}

// Configure changes what the fake library says, on the node and in containers
// that mount InsideConfig at InsideConfigPath: there it shows the cards that the
// container may open.
func (n *GPUNode) Configure(c fakelib.Config) error {
	if err := c.Write(n.Config); err != nil {
		return err
	}
	inside := maps.Clone(c)
	inside["visibility"] = "devnodes"
	return inside.Write(n.InsideConfig())
}

// InsideConfigPath is where the fake library looks in a container.
const InsideConfigPath = "/etc/nri-gpu/fake-nvml.json"

// InsideConfig is the host's file for it, or "" for real GPUs.
func (n *GPUNode) InsideConfig() string {
	if n.Config == "" {
		return ""
	}
	return strings.TrimSuffix(n.Config, ".json") + "-inside.json"
}

// inventory has what the fake host needs of a profile.
func inventory(c fakelib.Config) device.Inventory {
	inv := device.Inventory{}
	devices, _ := c["devices"].([]any)
	for i := range devices {
		d := c.Device(i)
		text := func(key string) string { s, _ := d[key].(string); return s }
		number := func(key string) int { f, _ := d[key].(float64); return int(f) }
		gpu := device.GPU{
			UUID: text("uuid"), Model: text("name"), Index: i, Minor: number("minor"), NUMANode: number("numa"), PCIBusID: hostfs.NormalizeBusID(text("bus_id")),
		}
		migs, _ := d["mig"].([]any)
		for _, m := range migs {
			mig, _ := m.(map[string]any)
			gi, _ := mig["gi"].(float64)
			ci, _ := mig["ci"].(float64)
			gpu.MIGDevices = append(gpu.MIGDevices, device.MIGDevice{GPUInstance: int(gi), ComputeInstance: int(ci), GPUInstanceMinor: -1, ComputeInstanceMinor: -1})
		}
		inv.GPUs = append(inv.GPUs, gpu)
	}
	return inv
}

func (n *GPUNode) flags() []string {
	return []string{
		"--driver-root", n.Roots.Driver, "--dev-root", or(n.Roots.Dev), "--host-root", or(n.Roots.Host), "--state-dir", string(n.State), "--cdi-dir", CDIDir,
		"--nri-socket", NRISocket, "--kubelet-dir", KubeletDir, "--hook-path", filepath.Join(n.Bin, "gpu-hook"), "--resource-name", n.Resource,
	}
}

func or(dir string) string {
	if dir == "" {
		return "/"
	}
	return dir
}

// StartNRI starts nri-gpu.
func (n *GPUNode) StartNRI(ctx context.Context) (err error) {
	n.NRI, err = n.World.start(ctx, command{
		name: "nri-gpu", path: filepath.Join(n.Bin, "nri-gpu"), args: append(n.flags(), "--listen-address", NRIAddress),
		ready: get("http://" + NRIAddress + "/healthz"), within: time.Minute,
	})
	return err
}

// Env are the variables by which programs find the fake library's machine.
func (n *GPUNode) Env() []string {
	var env []string
	if n.Config != "" {
		env = append(env, "NRI_GPU_FAKE_NVML_CONFIG="+n.Config)
	}
	if n.Version != "" {
		env = append(env, "NRI_GPU_FAKE_NVML_DRIVER="+n.Version)
	}
	return env
}

// StartPlugin starts the device plugin.
func (n *GPUNode) StartPlugin(ctx context.Context) (err error) {
	n.Plugin, err = n.World.start(ctx, command{
		name: "gpu-device-plugin", path: filepath.Join(n.Bin, "gpu-device-plugin"), args: append(n.flags(), "--listen-address", PluginAddress), env: n.Env(),
		ready: get("http://" + PluginAddress + "/healthz"), within: time.Minute,
	})
	return err
}

// Ready waits until both daemons are.
func (n *GPUNode) Ready(ctx context.Context) error {
	for _, d := range []struct {
		p       *Process
		address string
	}{{n.NRI, NRIAddress}, {n.Plugin, PluginAddress}} {
		if err := d.p.await(ctx, get("http://"+d.address+"/readyz"), time.Minute); err != nil {
			return errors.Join(err, n.reasons(ctx, d.address))
		}
	}
	return nil
}

// reasons is what a daemon says of why it is not ready.
func (n *GPUNode) reasons(ctx context.Context, address string) error {
	text, err := Body(context.WithoutCancel(ctx), "http://"+address+"/readyz")
	if err != nil {
		return err
	}
	return errors.New(text)
}
