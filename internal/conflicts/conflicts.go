// Package conflicts finds what else on a node gets in the way, from files and
// sockets alone: another plugin for the same resource, another injector, a
// runtime that is not switched on for us. A finding stops nothing; it is named
// at start, with the next step.
package conflicts

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Node says where to look.
type Node struct {
	// Host is the directory that is the host's root.
	Host string
	// KubeletDir is the kubelet's device plugin directory; not looked at when
	// empty.
	KubeletDir string
	CDIDir     string
	// Resource is ours.
	Resource string
}

// Finding is one conflict.
type Finding struct {
	// ID is a short word that does not change.
	ID string
	// Subject is the file or socket.
	Subject string
	// What is wrong, and Next what to do.
	What, Next string
}

// Find looks at everything.
func Find(n Node) []Finding {
	if n.Host == "" {
		n.Host = "/"
	}
	return slices.Concat(n.plugins(), n.containerd(), n.crio(), n.nriPlugins(), n.specs())
}

// Log names each finding.
func Log(log logrus.FieldLogger, findings []Finding) {
	for _, f := range findings {
		log.WithFields(logrus.Fields{"conflict": f.ID, "subject": f.Subject}).Warnf("%s; %s", f.What, f.Next)
	}
}

func (n Node) host(path ...string) string {
	return filepath.Join(append([]string{n.Host}, path...)...)
}

// dialTimeout bounds the question whether somebody listens on a socket.
const dialTimeout = 500 * time.Millisecond

// plugins finds NVIDIA's device plugin, by the name of its socket: it is
// nvidia-<resource>.sock for nvidia.com/<resource>.
func (n Node) plugins() []Finding {
	if n.KubeletDir == "" {
		return nil
	}
	domain, name, _ := strings.Cut(n.Resource, "/")
	vendor, _, _ := strings.Cut(domain, ".")
	socket := filepath.Join(n.KubeletDir, vendor+"-"+name+".sock")
	conn, err := net.DialTimeout("unix", socket, dialTimeout)
	if err != nil {
		return nil
	}
	_ = conn.Close() // it was only asked whether it is there
	return []Finding{{
		ID: "device-plugin", Subject: socket, What: "another device plugin serves " + n.Resource + " on this node",
		Next: "remove it (NVIDIA's is the DaemonSet nvidia-device-plugin), or give this one another --resource-name",
	}}
}

// nriPlugins finds NVIDIA's own plugin where the runtime launches it from.
func (n Node) nriPlugins() []Finding {
	found, err := filepath.Glob(n.host("opt", "nri", "plugins", "*nvidia*"))
	if err != nil {
		return nil
	}
	var out []Finding
	for _, f := range found {
		out = append(out, Finding{
			ID: "nri-plugin", Subject: f, What: "NVIDIA's NRI plugin injects on this node too, and a container that both inject is refused by the runtime",
			Next: "remove it and restart the container runtime",
		})
	}
	return out
}

// specs finds another file of our guard's kind: a runtime uses neither of two.
func (n Node) specs() []Finding {
	var out []Finding
	for _, dir := range []string{n.CDIDir, n.host("etc", "cdi")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			if err != nil || e.Name() == cdi.SpecFileName(cdi.KindGPU) {
				continue
			}
			if spec, err := cdi.DecodeSpec(data); err == nil && spec.Kind == cdi.KindGPU {
				out = append(out, Finding{
					ID: "cdi-spec", Subject: path, What: "it declares devices of kind " + cdi.KindGPU + ", and of two such specs a runtime uses neither", Next: "remove it",
				})
			}
		}
	}
	return out
}
