// Command demo shows the main job on one node: three pods ask for one GPU, for
// two, and for none, and what each got is printed beside what it was allocated.
// It uses the machine's GPUs, or plays to have eight.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/driverroot"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/test/harness"
)

func main() {
	world, err := harness.Enter()
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		err = run(ctx, world)
		stop()
	}
	if err != nil {
		fmt.Println("demo: FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("demo: ok")
}

// demo is what runs.
type demo struct {
	world     *harness.World
	node      *harness.GPUNode
	tools     harness.Tools
	cache     string
	image     string
	started   time.Time
	processes []*harness.Process
}

func run(ctx context.Context, world *harness.World) (err error) {
	_, file, _, _ := runtime.Caller(0)
	top := filepath.Join(filepath.Dir(file), "..", "..")
	cache := os.Getenv("NRI_GPU_CACHE")
	if cache == "" {
		cache = filepath.Join(top, ".cache")
	}
	d := &demo{world: world, cache: cache, tools: harness.Tools(filepath.Join(cache, "tools", "bin")), started: time.Now()}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.gpus(ctx, filepath.Join(top, "bin")); err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	ok, err := d.pods(ctx)
	if err != nil {
		return err
	}
	if os.Getenv("KEEP") != "" {
		d.keep(ctx)
	}
	if !ok {
		return errors.New("a container did not get exactly what it was allocated; see above")
	}
	return nil
}

// step says what is done now.
func (d *demo) step(format string, args ...any) {
	fmt.Printf("[%5.1fs] %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

// gpus decides whether the machine's GPUs are used.
func (d *demo) gpus(ctx context.Context, bin string) error {
	exe := filepath.Join(bin, "gpuctl")
	disco := nvml.New(nvml.Options{Command: []string{exe, nvml.WorkerCommand}, Library: func() (string, error) { return driverroot.NVML(roots.Roots{}) }})
	inv := disco.Discover(ctx)
	disco.Close()
	if inv.Driver.State == device.DriverReady && len(inv.GPUs) > 1 {
		d.step("this machine has %d GPUs, driver %s: using them", len(inv.GPUs), inv.Driver.Version)
		d.node = harness.RealGPUNode(d.world, bin)
		return nil
	}
	d.step("no two usable GPUs here (%s): simulating a machine with eight A100s", inv.Driver.Reason)
	var err error
	d.node, err = harness.NewGPUNode(d.world, bin, "a100x8")
	return err
}

func (d *demo) start(ctx context.Context) error {
	d.step("starting containerd")
	containerd, err := d.world.StartContainerd(ctx, d.tools)
	if err != nil {
		return err
	}
	d.processes = append(d.processes, containerd)
	if err := d.images(ctx); err != nil {
		return err
	}
	d.step("starting nri-gpu")
	if err := d.node.StartNRI(ctx); err != nil {
		return err
	}
	d.processes = append(d.processes, d.node.NRI)
	d.step("starting the kubelet, which runs the pods of a directory")
	manifests := d.manifests()
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return err
	}
	kubelet, err := d.world.StartKubelet(ctx, d.tools, harness.Kubelet{Manifests: manifests})
	if err != nil {
		return err
	}
	d.processes = append(d.processes, kubelet)
	d.step("starting gpu-device-plugin")
	if err := d.node.StartPlugin(ctx); err != nil {
		return err
	}
	d.processes = append(d.processes, d.node.Plugin)
	if err := d.node.Ready(ctx); err != nil {
		return err
	}
	d.step("%s is registered with the kubelet", d.node.Resource)
	return nil
}

func (d *demo) manifests() string { return filepath.Join(d.world.Dir, "manifests") }

func (d *demo) images(ctx context.Context) error {
	pause, err := d.world.PauseImage()
	if err != nil {
		return err
	}
	debian := harness.DebianImage(d.cache)
	d.image = debian.Name
	for _, i := range []struct {
		image harness.Image
		file  string
	}{{pause, filepath.Join(d.world.Dir, "pause.tar")}, {debian, debian.Root + ".tar"}} {
		d.step("importing the image %s", i.image.Name)
		if err := i.image.Archive(ctx, i.file); err != nil {
			return err
		}
		if err := d.world.Import(ctx, d.tools, i.file); err != nil {
			return err
		}
	}
	return nil
}

// keep leaves everything running until a signal.
func (d *demo) keep(ctx context.Context) {
	fmt.Printf(`
The node is left running. From another terminal, as root:

  nsenter -t %[1]d -a
  PATH=$PATH:%[2]s ctr -a %[3]s -n k8s.io containers ls
  curl %[4]s/debug/state; curl %[5]s/debug/state
  ls %[6]s/containers            which container holds which card
  ls %[7]s                       logs
  cp POD.yaml %[8]s/             runs another pod

Ctrl-C ends it.
`, os.Getpid(), d.tools, harness.ContainerdSocket, harness.NRIAddress, harness.PluginAddress, d.node.State, filepath.Join(d.world.Dir, "logs"), d.manifests())
	<-ctx.Done()
}

// stop ends everything, in the reverse order.
func (d *demo) stop() error {
	d.step("stopping everything")
	var errs []error
	for i := len(d.processes) - 1; i >= 0; i-- {
		errs = append(errs, d.processes[i].Stop())
	}
	return errors.Join(errs...)
}

// indent puts a prefix before every line.
func indent(prefix, text string) string {
	return prefix + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+prefix)
}
