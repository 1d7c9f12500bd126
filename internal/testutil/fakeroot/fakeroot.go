package fakeroot

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/ldcache"
)

// Layout says where a distribution puts the parts of the driver, below the
// driver root.
type Layout struct {
	Lib, Lib32 string // directories of libraries; no 32-bit ones when empty
	// Links is where the SONAME links lie, when that is another directory.
	Links string
	Bin   string
	Share string // glvnd, vulkan and so on
	Etc   string
	// Cache is the path of an ld.so.cache that names Lib; none when empty.
	Cache string
}

// The layouts of the distributions on x86-64.
func layouts() map[string]Layout {
	return map[string]Layout{
		"ubuntu": {Lib: "/usr/lib/x86_64-linux-gnu", Lib32: "/usr/lib/i386-linux-gnu", Bin: "/usr/bin", Share: "/usr/share", Etc: "/etc", Cache: "/etc/ld.so.cache"},
		"debian": {Lib: "/usr/lib/x86_64-linux-gnu/nvidia/current", Links: "/usr/lib/x86_64-linux-gnu", Bin: "/usr/lib/nvidia/current", Share: "/usr/share", Etc: "/etc"},
		"rhel":   {Lib: "/usr/lib64", Lib32: "/usr/lib", Bin: "/usr/bin", Share: "/usr/share", Etc: "/etc", Cache: "/etc/ld.so.cache"},
		"arch":   {Lib: "/usr/lib", Lib32: "/usr/lib32", Bin: "/usr/bin", Share: "/usr/share", Etc: "/etc"},
		"gke":    {Lib: "/lib64", Bin: "/bin", Share: "/", Etc: "/etc"},
		"talos":  {Lib: "/glibc/usr/lib", Bin: "/bin", Share: "/share", Etc: "/etc", Cache: "/glibc/etc/ld.so.cache"},
		"nixos":  {Lib: "/nix/store/0a1b2c-nvidia-x11-535/lib", Links: "/run/opengl-driver/lib", Bin: "/run/current-system/sw/bin", Share: "/run/opengl-driver/share", Etc: "/etc"},
	}
}

// soname of each library; %s stands for the driver's version.
func libraries() map[string]string {
	return map[string]string{
		"cuda": "libcuda.so.1", "cudadebugger": "libcudadebugger.so.1", "nvidia-ml": "libnvidia-ml.so.1", "nvidia-cfg": "libnvidia-cfg.so.1",
		"nvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1", "nvidia-opencl": "libnvidia-opencl.so.1", "nvidia-nvvm": "libnvidia-nvvm.so.4",
		"nvidia-allocator": "libnvidia-allocator.so.1", "nvidia-encode": "libnvidia-encode.so.1", "nvcuvid": "libnvcuvid.so.1",
		"nvidia-opticalflow": "libnvidia-opticalflow.so.1", "nvidia-eglcore": "libnvidia-eglcore.so.%s", "nvidia-glcore": "libnvidia-glcore.so.%s",
		"nvidia-tls": "libnvidia-tls.so.%s", "GLX_nvidia": "libGLX_nvidia.so.0", "EGL_nvidia": "libEGL_nvidia.so.0", "nvoptix": "libnvoptix.so.1",
		"nvidia-ngx": "libnvidia-ngx.so.1",
	}
}

// Options choose what is made.
type Options struct {
	// Layout is ubuntu, debian, rhel, arch, gke, talos or nixos.
	Layout string
	// Version is the driver's.
	Version string
	// NVML is a libnvidia-ml.so.1 to take instead of an empty one.
	NVML string
	// SMI is a program to take as nvidia-smi instead of a script.
	SMI string
}

// Make fills a driver root.
func Make(root string, o Options) error {
	layout, ok := layouts()[o.Layout]
	if !ok {
		return fmt.Errorf("unknown layout %q", o.Layout)
	}
	m := maker{root: root, layout: layout, options: o}
	m.libraries()
	m.programs()
	m.configs()
	m.cache()
	return m.err
}

// maker keeps the first error.
type maker struct {
	root    string
	layout  Layout
	options Options
	entries []ldcache.Entry
	err     error
}

func (m *maker) file(p string, data []byte, mode os.FileMode) {
	full := filepath.Join(m.root, p)
	if m.err == nil {
		m.err = os.MkdirAll(filepath.Dir(full), 0o755)
	}
	if m.err == nil {
		m.err = os.WriteFile(full, data, mode)
	}
}

func (m *maker) link(target, p string) {
	full := filepath.Join(m.root, p)
	if m.err == nil {
		m.err = os.MkdirAll(filepath.Dir(full), 0o755)
	}
	if m.err == nil {
		m.err = os.Symlink(target, full)
	}
}

func (m *maker) libraries() {
	for stem, soname := range libraries() {
		m.library(m.layout.Lib, stem, soname, false)
		if m.layout.Lib32 != "" && (stem == "cuda" || stem == "nvidia-ml") {
			m.library(m.layout.Lib32, stem, soname, true)
		}
	}
	m.library(path.Join(m.layout.Lib, "vdpau"), "vdpau_nvidia", "libvdpau_nvidia.so.1", false)
	m.file(path.Join(m.layout.Lib, "libnvidia-egl-gbm.so.1.1.0"), Library("libnvidia-egl-gbm.so.1", false), 0o644)
}

func (m *maker) library(dir, stem, soname string, is32Bit bool) {
	if strings.Contains(soname, "%s") {
		soname = fmt.Sprintf(soname, m.options.Version)
	}
	base := "lib" + stem + ".so." + m.options.Version
	data := Library(soname, is32Bit)
	if stem == "nvidia-ml" && m.options.NVML != "" && !is32Bit && m.err == nil {
		data, m.err = os.ReadFile(m.options.NVML)
	}
	m.file(path.Join(dir, base), data, 0o644)
	if soname == base {
		return
	}
	target, links := base, dir
	if m.layout.Links != "" && dir == m.layout.Lib {
		// Absolute, as packages make them: right only within the root.
		target, links = path.Join(dir, base), m.layout.Links
	}
	m.link(target, path.Join(links, soname))
	flags := uint32(ldcache.FlagELFLibc6 | ldcache.FlagX8664)
	if is32Bit {
		flags = ldcache.FlagELFLibc6 | ldcache.FlagI386
	}
	m.entries = append(m.entries, ldcache.Entry{Name: soname, Path: path.Join(links, soname), Flags: flags})
}

func (m *maker) programs() {
	smi := []byte("#!/bin/sh\necho fake nvidia-smi\n")
	if m.options.SMI != "" && m.err == nil {
		smi, m.err = os.ReadFile(m.options.SMI)
	}
	m.file(path.Join(m.layout.Bin, "nvidia-smi"), smi, 0o755)
	for _, name := range []string{"nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"} {
		m.file(path.Join(m.layout.Bin, name), []byte("#!/bin/sh\n"), 0o755)
	}
}

func (m *maker) configs() {
	m.file(path.Join(m.layout.Share, "glvnd/egl_vendor.d/10_nvidia.json"), []byte("{}\n"), 0o644)
	m.file(path.Join(m.layout.Share, "vulkan/icd.d/nvidia_icd.json"), []byte("{}\n"), 0o644)
	m.file(path.Join(m.layout.Etc, "OpenCL/vendors/nvidia.icd"), []byte("libnvidia-opencl.so.1\n"), 0o644)
	m.file(path.Join("/lib/firmware/nvidia", m.options.Version, "gsp_ga10x.bin"), []byte("firmware\n"), 0o644)
}

func (m *maker) cache() {
	if m.layout.Cache != "" {
		m.file(m.layout.Cache, ldcache.Cache{Entries: m.entries}.Encode(), 0o644)
	}
}
