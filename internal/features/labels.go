package features

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

// Labels returns the labels of a node with an inventory. machine is the name
// that its firmware gives it, empty when unknown. A node without a GPU has the
// one label that it is no virtual GPU's.
//
// The result depends on nothing else, not even on the order of the cards.
func Labels(inv *device.Inventory, sharing *Sharing, machine string) map[string]string {
	l := labels{}
	l.vgpu(inv.GPUs)
	if len(inv.GPUs) == 0 {
		return l
	}
	l.driver(&inv.Driver)
	l.set("gpu.machine", cmp.Or(sanitise(machine), "unknown"))
	l.set("gpu.mode", mode(inv.GPUs))
	l.set("gpu.clique", clique(inv.GPUs))
	l.set("mig.capable", migCapable(inv.GPUs))
	l.set("mps.capable", strconv.FormatBool(sharing.MPSConfigured && !slices.ContainsFunc(inv.GPUs, migEnabled)))
	models := groupByModel(inv.GPUs)
	l.gpus(&models[0], sharing)
	l.mig(models, sharing)
	for i := range models {
		l.model(&models[i], sharing)
	}
	return l
}

func (l labels) driver(d *device.Driver) {
	l.set("cuda.driver-version.full", d.Version)
	parts := strings.Split(d.Version, ".")
	if len(parts) == 2 || len(parts) == 3 {
		for i, names := range [][2]string{{"major", "major"}, {"minor", "minor"}, {"revision", "rev"}}[:len(parts)] {
			l.set("cuda.driver-version."+names[0], parts[i])
			l.set("cuda.driver."+names[1], parts[i])
		}
	}
	major, minor, ok := strings.Cut(d.CUDAVersion, ".")
	if !ok {
		return
	}
	l.set("cuda.runtime-version.full", d.CUDAVersion)
	for _, name := range []string{"cuda.runtime-version.", "cuda.runtime."} {
		l.set(name+"major", major)
		l.set(name+"minor", minor)
	}
}

// vgpu tells whether the node's GPUs are a hypervisor's. A card of which it is
// not known does not count; when it is known of none, the label stays out.
func (l labels) vgpu(gpus []device.GPU) {
	known := len(gpus) == 0
	for i := range gpus {
		v := gpus[i].VGPU
		if v != nil && v.Present {
			l.set("vgpu.present", "true")
			l.set("vgpu.host-driver-version", v.HostDriverVersion)
			l.set("vgpu.host-driver-branch", v.HostDriverBranch)
			return
		}
		known = known || v != nil
	}
	if known {
		l.set("vgpu.present", "false")
	}
}

// gpus writes the legacy keys of whole cards.
func (l labels) gpus(m *model, sharing *Sharing) {
	replicas := m.replicas(sharing)
	l.set("gpu.product", product(m.name, sharing.suffix(replicas)))
	l.set("gpu.count", strconv.Itoa(m.healthy()))
	l.set("gpu.replicas", strconv.Itoa(replicas))
	l.set("gpu.sharing-strategy", sharing.strategy(replicas))
	l.set("gpu.memory", mebibytes(m.memory()))
	l.set("gpu.family", m.family())
	if major, minor, ok := strings.Cut(m.compute(), "."); ok {
		l.set("gpu.compute.major", major)
		l.set("gpu.compute.minor", minor)
	}
}

// model writes a model's own keys.
func (l labels) model(m *model, sharing *Sharing) {
	l.set(m.key("count"), strconv.Itoa(m.healthy()))
	l.set(m.key("replicas"), strconv.Itoa(m.replicas(sharing)))
	l.set(m.key("memory"), mebibytes(m.memory()))
	l.set(m.key("family"), m.family())
	l.set(m.key("compute"), m.compute())
	if !advertisesMIG(sharing) {
		return
	}
	for _, p := range groupByProfile(m.cards) {
		l.set(m.key(p.profile+".count"), strconv.Itoa(p.healthy()))
	}
}

// mebibytes is empty for a size that is not known.
func mebibytes(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	return strconv.FormatUint(bytes>>20, 10)
}

// mode says what the PCI class makes of the cards: "graphics" for a VGA
// controller, "compute" for a 3D controller, "unknown" when they differ or
// nothing is known.
func mode(gpus []device.GPU) string {
	const unknown = "unknown"
	found := ""
	for i := range gpus {
		is := unknown
		switch {
		case gpus[i].PCIClass == "":
			continue // a card that is lost has none
		case strings.HasPrefix(gpus[i].PCIClass, "0x0300"):
			is = "graphics"
		case strings.HasPrefix(gpus[i].PCIClass, "0x0302"):
			is = "compute"
		}
		if found != "" && found != is {
			return unknown
		}
		found = is
	}
	return cmp.Or(found, unknown)
}

// clique is the fabric of all cards that are on one; empty when they differ. A
// fabric whose cluster is all zeros does not reach beyond the node.
func clique(gpus []device.GPU) string {
	found := ""
	for i := range gpus {
		f := gpus[i].Fabric
		if f == nil || strings.Trim(f.ClusterUUID, "0-") == "" {
			continue
		}
		is := f.ClusterUUID + "." + strconv.FormatUint(uint64(f.CliqueID), 10)
		if found != "" && found != is {
			return ""
		}
		found = is
	}
	return found
}

// migCapable tells whether any card can do MIG; empty when it is known of none.
func migCapable(gpus []device.GPU) string {
	answer := ""
	for i := range gpus {
		capable := gpus[i].MIGCapable
		if gpus[i].MIGEnabled || capable != nil && *capable {
			return "true"
		}
		if capable != nil {
			answer = "false"
		}
	}
	return answer
}

func migEnabled(g device.GPU) bool { return g.MIGEnabled }
