package driverroot

import (
	"path"
	"slices"
	"strings"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// libraryRule says which capabilities a library serves. The names are those of
// NVIDIA's driver packages; the grouping follows what
// NVIDIA_DRIVER_CAPABILITIES has always meant.
type libraryRule struct {
	name         string // without "lib" and ".so…"; a trailing * matches any rest
	capabilities []cdi.Capability
}

func libraryRules() []libraryRule {
	rule := func(caps []cdi.Capability, names ...string) []libraryRule {
		out := make([]libraryRule, 0, len(names))
		for _, n := range names {
			out = append(out, libraryRule{n, caps})
		}
		return out
	}
	graphics := []cdi.Capability{cdi.Graphics, cdi.Display}
	return slices.Concat(
		rule([]cdi.Capability{cdi.Utility}, "nvidia-ml", "nvidia-cfg", "nvidia-nscq*"),
		rule([]cdi.Capability{cdi.Compute}, "cuda", "cudadebugger", "nvidia-opencl", "nvidia-ptxjitcompiler", "nvidia-fatbinaryloader",
			"nvidia-compiler*", "nvidia-pkcs11*", "nvidia-nvvm*", "nvidia-tileiras", "nvidia-sandboxutils"),
		rule([]cdi.Capability{cdi.Compute, cdi.Graphics, cdi.Display}, "nvidia-allocator", "nvidia-gpucomp"),
		rule([]cdi.Capability{cdi.Video}, "vdpau_nvidia", "nvidia-encode", "nvidia-opticalflow", "nvcuvid"),
		rule([]cdi.Capability{cdi.NGX}, "nvidia-ngx", "nvidia-api"),
		rule(graphics, "nvidia-eglcore", "nvidia-glcore", "nvidia-tls", "nvidia-glsi", "nvidia-fbc", "nvidia-ifr", "nvidia-rtcore", "nvoptix",
			"GLX_nvidia", "EGL_nvidia", "GLESv2_nvidia", "GLESv1_CM_nvidia", "nvidia-glvkspirv", "nvidia-cbl", "nvidia-egl-*",
			"nvidia-vulkan-producer", "nvidia-vksc-core", "nvidia-wayland-client", "nvidia-present", "nvidia-gtk*", "glxserver_nvidia"),
	)
}

// versionless libraries carry another version than the driver's in their name.
func versionless() []string {
	return []string{"nvidia-egl-*", "nvidia-nvvm70", "nvidia-nscq*", "nvidia-api"}
}

// capabilitiesOf returns what a library serves; one that the table does not
// know serves compute, so that a library that a new driver adds is not missing.
func capabilitiesOf(stem string) []cdi.Capability {
	for _, r := range libraryRules() {
		if matches(r.name, stem) {
			return r.capabilities
		}
	}
	return []cdi.Capability{cdi.Compute}
}

func matches(pattern, stem string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(stem, prefix)
	}
	return pattern == stem
}

// stemOf returns "cuda" for "libcuda.so.535.1".
func stemOf(file string) (stem string, ok bool) {
	base, _, found := strings.Cut(path.Base(file), ".so")
	return strings.TrimPrefix(base, "lib"), found && strings.HasPrefix(base, "lib")
}

// isDriverLibrary tells whether a file name is one that the table knows.
func isDriverLibrary(file string) bool {
	stem, ok := stemOf(file)
	return ok && slices.ContainsFunc(libraryRules(), func(r libraryRule) bool { return matches(r.name, stem) })
}

// required is what a driver that serves compute has at least; a spec without
// one of them is not published.
func required() []string { return []string{"cuda", "nvidia-ml", "nvidia-ptxjitcompiler"} }

// Required tells whether a container that lost this library to a mount of its
// own must be refused rather than started without it.
func Required(containerPath string) bool {
	stem, ok := stemOf(containerPath)
	return ok && slices.Contains(required(), stem)
}

type fileRule struct {
	name         string // a base name, or a path below one of several directories
	capabilities []cdi.Capability
}

func binaryRules() []fileRule {
	utility, compute := []cdi.Capability{cdi.Utility}, []cdi.Capability{cdi.Compute}
	return []fileRule{
		{"nvidia-smi", utility},
		{"nvidia-debugdump", utility},
		{"nvidia-persistenced", utility},
		{"nv-fabricmanager", utility},
		{"nvidia-imex", utility},
		{"nvidia-imex-ctl", utility},
		{"nvidia-cuda-mps-control", compute},
		{"nvidia-cuda-mps-server", compute},
		{"nvidia-xconfig", []cdi.Capability{cdi.Display}},
	}
}

// binaryDirs are searched in order, below the root; the generator's own PATH
// plays no part.
func binaryDirs() []string {
	return []string{
		"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin", "/usr/lib/nvidia/current",
		"/run/current-system/sw/bin",
	}
}

func configRules() []fileRule {
	graphics, compute, display := []cdi.Capability{cdi.Graphics, cdi.Display}, []cdi.Capability{cdi.Compute}, []cdi.Capability{cdi.Display}
	return []fileRule{
		{"glvnd/egl_vendor.d/10_nvidia.json", graphics},
		{"egl/egl_external_platform.d/15_nvidia_gbm.json", graphics},
		{"egl/egl_external_platform.d/10_nvidia_wayland.json", graphics},
		{"egl/egl_external_platform.d/09_nvidia_wayland2.json", graphics},
		{"egl/egl_external_platform.d/20_nvidia_xcb.json", graphics},
		{"egl/egl_external_platform.d/20_nvidia_xlib.json", graphics},
		{"nvidia/nvoptix.bin", graphics},
		{"vulkan/icd.d/nvidia_icd.json", graphics},
		{"vulkan/icd.d/nvidia_icd.x86_64.json", graphics},
		{"vulkan/icd.d/nvidia_icd.aarch64.json", graphics},
		{"vulkan/icd.d/nvidia_layers.json", graphics},
		{"vulkan/implicit_layer.d/nvidia_layers.json", graphics},
		{"OpenCL/vendors/nvidia.icd", compute},
		{"X11/xorg.conf.d/10-nvidia.conf", display},
		{"X11/xorg.conf.d/nvidia-drm-outputclass.conf", display},
	}
}

func configDirs() []string { return []string{"/etc", "/usr/local/share", "/usr/share", nixShare, "/"} }

// nixShare is where NixOS links the driver's data files.
const nixShare = "/run/opengl-driver/share"

// xorgFiles are the X server's modules; their directories differ by distribution.
func xorgFiles(version string) []string {
	return []string{"nvidia_drv.so", "libglxserver_nvidia.so." + version}
}

func xorgDirs(libDirs []string) []string {
	var out []string
	for _, d := range append(slices.Clone(libDirs), "/usr/lib", "/usr/lib64") {
		for _, sub := range []string{"nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions", "xorg/modules/updates/drivers", "xorg/modules/updates/extensions", ""} {
			out = append(out, path.Join(d, sub))
		}
	}
	return append(out, "/usr/lib/nvidia/current", "/usr/lib/nvidia")
}
