package inject

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// adjust writes what was resolved into the adjustment, each key once.
func (i *Injector) adjust(pod *api.PodSandbox, c *api.Container, d *Decision, inj *cdi.Injection) error {
	userns := hasUserNamespace(c)
	if err := i.devices(pod, c, d, inj, userns); err != nil {
		return err
	}
	if err := i.mounts(pod, c, d, inj, userns); err != nil {
		return err
	}
	for _, e := range inj.Env {
		key, value, _ := strings.Cut(e, "=")
		if current := lookup(c.GetEnv(), key); len(current) == 0 || current[len(current)-1] != value {
			d.Adjustment.AddEnv(key, value)
		}
	}
	if inj.Hooks != nil {
		d.Adjustment.AddHooks(api.FromOCIHooks(inj.Hooks))
	}
	names := make([]string, len(d.Names))
	for k, n := range d.Names {
		names[k] = n.String()
	}
	d.Adjustment.AddAnnotation(InjectedAnnotation, strings.Join(names, ","))
	return nil
}

func (i *Injector) devices(pod *api.PodSandbox, c *api.Container, d *Decision, inj *cdi.Injection, userns bool) error {
	for k := range inj.Devices {
		dev := &inj.Devices[k]
		if v, ok := volumeOver(c, dev.Path); ok {
			return refuse(pod, c, fmt.Sprintf("device node %s", dev.Path), fmt.Sprintf("it would be made inside the pod's own volume, which is mounted at %s", v),
				"Mount the volume elsewhere; the device nodes of the GPU need no volume")
		}
		// In a user namespace nobody may make a node: runc binds the host's, by
		// the path that the container sees.
		if host := inj.HostNodes[dev.Path]; userns && host != dev.Path {
			return refuse(pod, c, fmt.Sprintf("device node %s", dev.Path), fmt.Sprintf("the pod has a user namespace, and the host has the node at %s", host),
				"Run the pod with hostUsers: true, or have the driver's nodes in the host's /dev")
		}
	}
	d.Adjustment.Linux = &api.LinuxContainerAdjustment{
		Devices:   api.FromOCILinuxDevices(inj.Devices),
		Resources: &api.LinuxResources{Devices: rules(inj.Rules)},
	}
	return nil
}

// rules are sent beside the devices because NRI derives a rule of its own from
// a device, which ignores the access that the spec allows.
func rules(in []oci.LinuxDeviceCgroup) []*api.LinuxDeviceCgroup {
	out := make([]*api.LinuxDeviceCgroup, 0, len(in))
	for _, r := range in {
		out = append(out, &api.LinuxDeviceCgroup{Allow: r.Allow, Type: r.Type, Major: api.Int64(r.Major), Minor: api.Int64(r.Minor), Access: r.Access})
	}
	return out
}

// mounts gives each driver file to the hook or, where that cannot mount it, to
// the runtime: in a user namespace, and below a mount that every container has.
func (i *Injector) mounts(pod *api.PodSandbox, c *api.Container, d *Decision, inj *cdi.Injection, userns bool) error {
	hook := inj.Hook()
	hookMounts := i.HookMounts && hook != nil && !userns
	var byHook []hookargs.Mount
	for _, m := range inj.Mounts {
		fits, err := i.fits(pod, c, d, inj, m, userns)
		if err != nil {
			return err
		}
		if !fits {
			continue
		}
		hm, ok := cdi.HookMount(m.Destination, m.Source, m.Options, inj.Required[m.Destination])
		if ok && hookMounts && !underMount(c, m.Destination) {
			byHook = append(byHook, hm)
			continue
		}
		d.Adjustment.AddMount(&api.Mount{Source: m.Source, Destination: m.Destination, Type: "bind", Options: m.Options})
	}
	if len(byHook) == 0 {
		return nil
	}
	return cdi.AddHookMounts(hook, byHook)
}

// fits tells whether a driver file may be mounted. One that is not required
// gives way; one that is required refuses the container.
func (i *Injector) fits(pod *api.PodSandbox, c *api.Container, d *Decision, inj *cdi.Injection, m oci.Mount, userns bool) (bool, error) {
	why, what := "", ""
	if v, ok := volumeOver(c, m.Destination); ok {
		why, what = fmt.Sprintf("it would be written into the pod's own volume, which is mounted at %s", v), "Mount the volume elsewhere"
	} else if userns && !i.worldReadable(m.Source) {
		why, what = fmt.Sprintf("the pod has a user namespace, and not everyone may read %s", m.Source), "Make it readable for all, or run the pod with hostUsers: true"
	}
	switch {
	case why == "":
		return true, nil
	case inj.Required[m.Destination]:
		return false, refuse(pod, c, "driver file "+m.Destination, why, what)
	}
	d.Skipped = append(d.Skipped, fmt.Sprintf("%s: %s", m.Destination, why))
	return false, nil
}

func (i *Injector) worldReadable(host string) bool {
	local := host
	if i.Local != nil {
		local = i.Local(host)
	}
	info, err := os.Stat(local)
	return err == nil && info.Mode().Perm()&0o004 != 0
}

func hasUserNamespace(c *api.Container) bool {
	return slices.ContainsFunc(c.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool { return n.GetType() == "user" })
}

// volumeOver returns the mount of the container at or above a path, when it is
// not one that every container has. What lies under it is the user's: we
// neither write there nor hide anything of it.
func volumeOver(c *api.Container, target string) (string, bool) {
	for _, m := range c.GetMounts() {
		dest := path.Clean("/" + m.GetDestination())
		if dest == cdi.GuardPath || isSystemMount(m) {
			continue
		}
		if isBelow(target, dest) {
			return dest, true
		}
	}
	return "", false
}

// underMount tells whether a path lies at or below any mount of the container,
// one that every container has included: the hook stays on the root's own.
func underMount(c *api.Container, target string) bool {
	return slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return isBelow(target, path.Clean("/"+m.GetDestination())) })
}

func isBelow(target, dir string) bool {
	return target == dir || strings.HasPrefix(target, strings.TrimSuffix(dir, "/")+"/")
}

// isSystemMount tells the mounts that the runtime makes for every container
// (OCI's default file systems) by their type: a volume is a bind. A pod's own
// shared memory is one, too, of a directory of the runtime's.
func isSystemMount(m *api.Mount) bool {
	switch m.GetType() {
	case "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2":
		return true
	case "tmpfs":
		return m.GetDestination() == "/dev" || m.GetDestination() == "/dev/shm" || m.GetDestination() == "/run"
	case "bind":
		sandbox, base := path.Split(m.GetSource())
		return m.GetDestination() == "/dev/shm" && base == "shm" && path.Base(path.Dir(path.Clean(sandbox))) == "sandboxes"
	}
	return false
}
