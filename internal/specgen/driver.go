package specgen

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/driverroot"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// driverSpec makes the kind with one device for each capability.
func (g *generator) driverSpec() {
	files, err := driverroot.Find(driverroot.Options{Roots: g.cfg.Roots, LibraryDirs: g.cfg.LibraryDirs, Version: g.res.Inventory.Driver.Version})
	if files != nil {
		g.res.Report.Driver = &files.Report
	}
	if err != nil {
		g.unserved(err.Error())
		return
	}
	spec := &specs.Spec{Kind: cdi.KindDriver}
	control, ok := g.control()
	if !ok {
		return
	}
	spec.Devices = append(spec.Devices, control)
	for _, c := range cdi.AllCapabilities() {
		edits := g.capability(files, c)
		if len(edits.Mounts)+len(edits.DeviceNodes) > 0 {
			spec.Devices = append(spec.Devices, specs.Device{Name: string(c), Annotations: required(edits), ContainerEdits: edits})
		}
	}
	g.add(spec)
}

// required names the mounts that a container must not be started without.
func required(edits specs.ContainerEdits) map[string]string {
	var paths []string
	for _, m := range edits.Mounts {
		if driverroot.Required(m.ContainerPath) {
			paths = append(paths, m.ContainerPath)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return map[string]string{cdi.RequiredAnnotation: strings.Join(paths, ":")}
}

// control is what every container with a GPU gets: the control nodes, and the
// links by PCI path to the DRM nodes that it has.
func (g *generator) control() (specs.Device, bool) {
	var edits specs.ContainerEdits
	for _, n := range []string{devnodes.Control, devnodes.UVM} {
		if !g.node(&edits, n, cdi.DriverControl) {
			g.unserved(fmt.Sprintf("the control node is not usable: %s; load the nvidia and nvidia-uvm modules, then `nvidia-modprobe -u -c=0`", checkNode(g.cfg.Roots.DevPath(n))))
			return specs.Device{}, false
		}
	}
	g.node(&edits, devnodes.UVMTools, cdi.DriverControl) // profilers only
	g.hook(&edits, hookargs.Args{Links: g.byPathLinks()})
	return specs.Device{Name: cdi.DriverControl, ContainerEdits: edits}, true
}

// byPathLinks are /dev/dri/by-path/pci-<bus id>-{card,render}. The hook makes a
// link only where its target is, so those of all cards go along.
func (g *generator) byPathLinks() []hookargs.Link {
	var links []hookargs.Link
	for i := range g.res.Inventory.GPUs {
		gpu := &g.res.Inventory.GPUs[i]
		for _, n := range gpu.DRMNodes {
			kind := "card"
			if strings.HasPrefix(n, "renderD") {
				kind = "render"
			}
			links = append(links, hookargs.Link{Path: fmt.Sprintf("/dev/dri/by-path/pci-%s-%s", gpu.PCIBusID, kind), Target: "../" + n})
		}
	}
	return links
}

func (g *generator) capability(files *driverroot.Files, c cdi.Capability) specs.ContainerEdits {
	var edits specs.ContainerEdits
	if c == cdi.Graphics || c == cdi.Display {
		g.node(&edits, devnodes.Modeset, string(c))
	}
	var args hookargs.Args
	for _, l := range files.Libraries {
		if !slices.Contains(l.Capabilities, c) {
			continue
		}
		g.mount(&edits, l.File, cdi.FileOptions())
		args.Libraries = append(args.Libraries, hookargs.Library{Path: l.Container, SONAME: l.SONAME, Is32Bit: l.Is32Bit})
		for _, link := range slices.Sorted(maps.Keys(l.Links)) {
			args.Links = append(args.Links, hookargs.Link{Path: link, Target: l.Links[link]})
		}
	}
	for _, list := range [][]driverroot.File{files.Binaries, files.Configs, files.Firmware} {
		for _, f := range list {
			if slices.Contains(f.Capabilities, c) {
				g.mount(&edits, f, cdi.FileOptions())
			}
		}
	}
	for _, f := range files.Sockets {
		if slices.Contains(f.Capabilities, c) {
			g.mount(&edits, f, cdi.SocketOptions())
		}
	}
	g.hook(&edits, args)
	return edits
}

func (g *generator) mount(edits *specs.ContainerEdits, f driverroot.File, options []string) {
	edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: g.cfg.Mapping.ToHost(f.Source), ContainerPath: f.Container, Options: options})
}

// hook adds the one hook. Its environment is never empty: without one a hook
// inherits the container's, LD_PRELOAD included.
func (g *generator) hook(edits *specs.ContainerEdits, args hookargs.Args) {
	if g.cfg.HookPath == "" || len(args.Links)+len(args.Libraries) == 0 {
		return
	}
	edits.Hooks = append(edits.Hooks, &specs.Hook{
		HookName: "createContainer", Path: g.cfg.HookPath, Args: args.Encode(), Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
	})
}

// extraSpecs are the kinds of devices beside GPUs, each when its nodes are
// there.
func (g *generator) extraSpecs() {
	g.extra(cdi.KindGDS, []string{"/dev/nvidia-fs*"}, []string{"/run/udev", "/etc/cufile.json"})
	g.extra(cdi.KindGDRCopy, []string{"/dev/gdrdrv"}, nil)
	g.extra(cdi.KindMOFED, []string{"/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"}, nil)
	g.extra(cdi.KindNVSwitch, []string{"/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch[0-9]*"}, nil)
	g.imexChannels()
}

func (g *generator) extra(kind string, patterns, files []string) {
	var edits specs.ContainerEdits
	for _, p := range patterns {
		for _, n := range g.nodesLike(p) {
			g.node(&edits, n, kind)
		}
	}
	if len(edits.DeviceNodes) == 0 {
		return
	}
	for _, f := range files {
		host := filepath.Join("/", g.cfg.Roots.Host, f)
		if _, err := os.Stat(host); err == nil {
			g.mount(&edits, driverroot.File{Source: host, Container: f}, cdi.FileOptions())
		}
	}
	g.add(&specs.Spec{Kind: kind, Devices: []specs.Device{{Name: cdi.DeviceAll, ContainerEdits: edits}}})
}

func (g *generator) imexChannels() {
	spec := &specs.Spec{Kind: cdi.KindIMEX}
	for _, n := range g.nodesLike("/dev/nvidia-caps-imex-channels/channel*") {
		var edits specs.ContainerEdits
		if g.node(&edits, n, cdi.KindIMEX) {
			spec.Devices = append(spec.Devices, specs.Device{Name: strings.TrimPrefix(path.Base(n), "channel"), ContainerEdits: edits})
		}
	}
	g.add(spec)
}

// nodesLike lists nodes below the dev root by a pattern of container paths.
func (g *generator) nodesLike(pattern string) []string {
	dir, base := path.Split(pattern)
	entries, err := os.ReadDir(g.cfg.Roots.DevPath(dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if ok, err := path.Match(base, e.Name()); err == nil && ok {
			out = append(out, path.Join(dir, e.Name()))
		}
	}
	return out
}
