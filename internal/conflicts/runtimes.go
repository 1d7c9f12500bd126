package conflicts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxImports bounds how many files a configuration may bring in.
const maxImports = 64

// criPlugins are the names of containerd's table for runtimes: 2.x, 1.x.
func criPlugins() []string {
	return []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"}
}

// containerd reads its configuration with all that it imports.
func (n Node) containerd() []Finding {
	main := n.host("etc", "containerd", "config.toml")
	var out []Finding
	for _, file := range n.withImports(main) {
		config, ok := decode(file)
		if !ok {
			continue
		}
		out = append(out, nriSwitch(file, config)...)
		for _, name := range criPlugins() {
			out = append(out, runtimes(file, table(config, "plugins", name))...)
		}
	}
	return append(out, oldDefaults(main)...)
}

// withImports lists a configuration and what it imports, each once.
func (n Node) withImports(main string) []string {
	files := []string{main}
	for i := 0; i < len(files) && i < maxImports; i++ {
		config, _ := decode(files[i])
		imports, _ := config["imports"].([]any)
		for _, v := range imports {
			pattern, _ := v.(string)
			for _, f := range n.imported(files[i], pattern) {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		}
	}
	return files
}

// imported lists the files that a pattern in a configuration stands for; a
// relative one is relative to the file.
func (n Node) imported(file, pattern string) []string {
	path := n.host(pattern)
	if !filepath.IsAbs(pattern) {
		path = filepath.Join(filepath.Dir(file), pattern)
	}
	found, err := filepath.Glob(path)
	if pattern == "" || err != nil {
		return nil
	}
	return found
}

func decode(file string) (map[string]any, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, false
	}
	var config map[string]any
	return config, toml.Unmarshal(data, &config) == nil
}

func table(m map[string]any, path ...string) map[string]any {
	for _, p := range path {
		m, _ = m[p].(map[string]any)
	}
	return m
}

func nriSwitch(file string, config map[string]any) []Finding {
	nri := table(config, "plugins", "io.containerd.nri.v1.nri")
	for _, key := range []string{"disable", "disable_connections"} {
		if off, _ := nri[key].(bool); off {
			return []Finding{nriOff(file, fmt.Sprintf("NRI is switched off (%s = true)", key))}
		}
	}
	return nil
}

func nriOff(file, what string) Finding {
	return Finding{ID: "nri-off", Subject: file, What: what + ", and no container on this node gets a GPU", Next: "switch it on as in configs/containerd, and restart containerd"}
}

// oldDefaults finds a 1.x configuration that says nothing of NRI or CDI: both
// are off there.
func oldDefaults(file string) []Finding {
	config, ok := decode(file)
	if version, _ := config["version"].(int64); !ok || version > 2 {
		return nil
	}
	var out []Finding
	if _, said := table(config, "plugins", "io.containerd.nri.v1.nri")["disable"]; !said {
		out = append(out, nriOff(file, "this is a configuration of containerd 1.x, where NRI is off unless it is switched on"))
	}
	if on, _ := table(config, "plugins", "io.containerd.grpc.v1.cri")["enable_cdi"].(bool); !on {
		out = append(out, Finding{
			ID: "cdi-off", Subject: file, What: "this is a configuration of containerd 1.x, where CDI is off unless it is switched on",
			Next: "set enable_cdi as in configs/containerd, and restart containerd",
		})
	}
	return out
}

// runtimes finds NVIDIA's runtime as the default one, or as a handler.
func runtimes(file string, cri map[string]any) []Finding {
	containerd := table(cri, "containerd")
	fallback, _ := containerd["default_runtime_name"].(string)
	var out []Finding
	for name := range table(containerd, "runtimes") {
		binary, _ := table(containerd, "runtimes", name, "options")["BinaryName"].(string)
		if !strings.Contains(filepath.Base(binary), "nvidia-container-runtime") {
			continue
		}
		if name == fallback {
			out = append(out, Finding{
				ID: "nvidia-default-runtime", Subject: file, What: "NVIDIA's runtime is the default, and injects what a container's own environment says",
				Next: "set default_runtime_name = \"runc\", and restart containerd",
			})
		} else {
			out = append(out, Finding{
				ID: "nvidia-runtime-class", Subject: file, What: fmt.Sprintf("runtime handler %q is NVIDIA's runtime; a pod with that runtimeClassName is injected by both", name),
				Next: "take runtimeClassName out of pods that ask for GPUs",
			})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return out
}

// crio reads CRI-O's configuration, in which NRI is on unless it is switched
// off.
func (n Node) crio() []Finding {
	files, err := filepath.Glob(n.host("etc", "crio", "crio.conf.d", "*"))
	if err != nil {
		return nil
	}
	var out []Finding
	for _, f := range append([]string{n.host("etc", "crio", "crio.conf")}, files...) {
		config, ok := decode(f)
		if !ok {
			continue
		}
		if on, said := table(config, "crio", "nri")["enable_nri"].(bool); said && !on {
			out = append(out, Finding{
				ID: "nri-off", Subject: f, What: "NRI is switched off (enable_nri = false), and no container on this node gets a GPU",
				Next: "set enable_nri = true as in configs/crio, and restart crio",
			})
		}
	}
	return out
}
