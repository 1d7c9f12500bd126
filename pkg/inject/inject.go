package inject

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Environment variables that NVIDIA's own stack reads.
const (
	envVisible      = "NVIDIA_VISIBLE_DEVICES"
	envCapabilities = "NVIDIA_DRIVER_CAPABILITIES"
	visibleNone     = "void"
)

// InjectedAnnotation marks a container that was given devices; its value lists
// their names. Synchronize reads it after a restart.
const InjectedAnnotation = "injected." + cdi.Vendor + "/devices"

// Resolver turns names into what goes in.
type Resolver interface {
	Resolve(req cdi.Request) (*cdi.Injection, error)
}

// Policy is what the administrator decides.
type Policy struct {
	// Capabilities are those that containers may ask for.
	Capabilities []cdi.Capability
	// ExemptHandlers and ExemptNamespaces keep their NVIDIA_VISIBLE_DEVICES:
	// those of NVIDIA's own operands, which a legacy runtime serves.
	ExemptHandlers, ExemptNamespaces []string
	// ManagementNamespaces are those whose pods may ask for every card: of
	// exporters and validators.
	ManagementNamespaces []string
	// DenyUnallocated refuses a container that has NVIDIA device nodes and no
	// allocation, as a privileged one has; else it is reported.
	DenyUnallocated bool
}

// Injector decides. Its fields are set once; Decide may be called from any
// goroutine.
type Injector struct {
	Resolver Resolver
	// Health returns why a device may not be used, or "" when it may.
	Health func(device string) string
	// Devices lists the CDI names of every device of the node.
	Devices func() []string
	// Keys returns the node's signing keys, or nil when there are none.
	Keys func() *cdi.Keyring
	// Local translates a host path to one that this process can stat.
	Local  func(string) string
	Policy Policy
	// HookMounts has the driver's files mounted by gpu-hook, and not by the
	// runtime, which takes longer.
	HookMounts bool
}

// Decision is what to do with a container that is ours.
type Decision struct {
	// Names are the devices that it gets, each once; none for a container whose
	// environment only is changed.
	Names        []cdi.Name
	Capabilities []cdi.Capability
	// Carrier is how the names came.
	Carrier cdi.Carrier
	// Skipped is what was left out: mounts that a mount of the pod's own takes
	// the place of, and unhealthy cards of a container that asked for all.
	Skipped []string
	// Unallocated are NVIDIA device nodes that the container has from elsewhere:
	// Kubernetes gives a privileged one every node of the host.
	Unallocated []string
	// Adjustment is nil when nothing is changed.
	Adjustment *api.ContainerAdjustment
}

// Decide returns nil for a container that is none of our business, or the
// decision, or a *Refusal.
func (i *Injector) Decide(pod *api.PodSandbox, c *api.Container) (*Decision, error) {
	for key := range pod.GetAnnotations() {
		if strings.HasPrefix(key, cdi.AnnotationPrefix) {
			return nil, refuse(pod, c, fmt.Sprintf("annotation %q", key), "it is set on the pod, and only the node's device plugin may set it, on a container",
				"Remove it from the pod and ask for GPUs in resources.limits")
		}
	}
	names, carrier, err := i.names(pod, c)
	if err != nil {
		return nil, err
	}
	everything, err := i.requested(pod, c)
	if err != nil {
		return nil, err
	}
	guarded := slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return m.GetDestination() == cdi.GuardPath })
	if guarded && len(names) == 0 {
		return nil, refuse(pod, c, "the guard mount", "the container has it and no allocation comes with it",
			"Delete the pod, so that the kubelet asks the device plugin anew; a pod must not mount it by itself")
	}
	a := &api.ContainerAdjustment{}
	if err := i.neutralise(pod, c, a); err != nil {
		return nil, err
	}
	d := &Decision{Names: names, Carrier: carrier, Adjustment: a}
	switch {
	case everything:
		i.everything(d)
	case len(names) == 0:
		return i.withoutDevices(pod, c, a)
	}
	if guarded {
		a.RemoveMount(cdi.GuardPath)
	}
	return d, i.fill(pod, c, d)
}

// withoutDevices decides on a container that was allocated none.
func (i *Injector) withoutDevices(pod *api.PodSandbox, c *api.Container, a *api.ContainerAdjustment) (*Decision, error) {
	d := &Decision{Unallocated: nodesOf(c)}
	if len(d.Unallocated) > 0 && i.Policy.DenyUnallocated && !slices.Contains(i.Policy.ExemptNamespaces, pod.GetNamespace()) {
		return nil, refuse(pod, c, fmt.Sprintf("device node %q", d.Unallocated[0]), "the container has it without an allocation, most likely because it is privileged, and this node does not allow that",
			"Ask for GPUs in resources.limits and drop privileged, or have the administrator list the namespace in --exempt-namespaces")
	}
	if len(a.GetEnv()) > 0 {
		d.Adjustment = a
	}
	if d.Adjustment == nil && len(d.Unallocated) == 0 {
		return nil, nil
	}
	return d, nil
}

// nodesOf lists the device nodes of NVIDIA's that a container has already.
func nodesOf(c *api.Container) []string {
	var out []string
	for _, d := range c.GetLinux().GetDevices() {
		if strings.HasPrefix(d.GetPath(), "/dev/nvidia") {
			out = append(out, d.GetPath())
		}
	}
	return out
}

// names returns the devices that the container was allocated, each once, sorted.
// The typed list is believed first: only the kubelet can write it.
func (i *Injector) names(pod *api.PodSandbox, c *api.Container) ([]cdi.Name, cdi.Carrier, error) {
	var texts []string
	for _, d := range c.GetCDIDevices() {
		if cdi.IsOurs(d.GetName()) {
			texts = append(texts, d.GetName())
		}
	}
	carrier := cdi.CarrierCDI
	if len(texts) == 0 {
		carrier = cdi.CarrierAnnotation
		var err error
		if texts, err = i.annotated(pod, c); err != nil {
			return nil, "", err
		}
	}
	names := make([]cdi.Name, 0, len(texts))
	for _, t := range texts {
		n, err := cdi.ParseName(t)
		if err == nil && n.Kind != cdi.KindGPU {
			err = fmt.Errorf("kind %q is not one that containers are allocated, which is %q", n.Kind, cdi.KindGPU)
		}
		if err != nil {
			r := refuse(pod, c, fmt.Sprintf("device %q", t), err.Error(), "Delete the pod, so that the kubelet asks the device plugin anew")
			r.Err = err
			return nil, "", r
		}
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b cdi.Name) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(names), carrier, nil
}

// annotated reads the signed annotations of the container.
func (i *Injector) annotated(pod *api.PodSandbox, c *api.Container) ([]string, error) {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(c.GetAnnotations())) {
		if !strings.HasPrefix(key, cdi.AnnotationPrefix) {
			continue
		}
		subject := fmt.Sprintf("annotation %q", key)
		// A checkpoint image brings annotations of its author's.
		if c.GetAnnotations()["restored"] == "true" || c.GetAnnotations()["checkpointImage"] != "" {
			return nil, refuse(pod, c, subject, "the container is restored from a checkpoint, whose annotations are not the node's", "Start it from an image")
		}
		keys := i.Keys()
		if keys == nil {
			return nil, refuse(pod, c, subject, "this node has no signing key to check it with", "Start the device plugin on this node, which makes the key; the container is tried again")
		}
		grant, err := keys.Verify(key, c.GetAnnotations()[key])
		if err != nil {
			r := refuse(pod, c, subject, err.Error(), "Delete the pod, so that it is allocated anew on this node")
			r.Err = err
			return nil, r
		}
		out = append(out, grant.Names...)
	}
	return out, nil
}

// neutralise keeps a legacy NVIDIA runtime from reading the pod's own
// NVIDIA_VISIBLE_DEVICES, whether the container has devices or not.
func (i *Injector) neutralise(pod *api.PodSandbox, c *api.Container, a *api.ContainerAdjustment) error {
	values := lookup(c.GetEnv(), envVisible)
	if len(values) == 0 || slices.Contains(i.Policy.ExemptHandlers, pod.GetRuntimeHandler()) || slices.Contains(i.Policy.ExemptNamespaces, pod.GetNamespace()) {
		return nil
	}
	if len(values) > 1 {
		return refuse(pod, c, "environment variable "+envVisible, fmt.Sprintf("it is set %d times, and then no plugin can take it back", len(values)),
			"Remove it from the pod: GPUs are asked for in resources.limits")
	}
	if values[0] != visibleNone {
		a.AddEnv(envVisible, visibleNone)
	}
	return nil
}

// fill resolves the names and writes the adjustment.
func (i *Injector) fill(pod *api.PodSandbox, c *api.Container, d *Decision) error {
	for _, n := range d.Names {
		if d.Carrier == CarrierRequest {
			break // the unhealthy ones were left out
		}
		if why := i.Health(n.Device); why != "" {
			return refuse(pod, c, fmt.Sprintf("device %q", n), "it is not usable: "+why,
				"The container is tried again and starts when the device is healthy; delete the pod to have it placed elsewhere")
		}
	}
	caps, err := i.capabilities(pod, c)
	if err != nil {
		return err
	}
	d.Capabilities = caps
	request := cdi.Request{
		Names: append(slices.Clone(d.Names), extraKinds(c)...), Capabilities: caps,
		UID: c.GetUser().GetUid(), GID: c.GetUser().GetGid(),
	}
	inj, err := i.Resolver.Resolve(request)
	if err != nil {
		return unresolved(pod, c, d, err)
	}
	return i.adjust(pod, c, d, inj)
}

func unresolved(pod *api.PodSandbox, c *api.Container, d *Decision, err error) error {
	subject := "the driver"
	if len(d.Names) > 0 {
		subject = fmt.Sprintf("device %q", d.Names[0])
	}
	r := refuse(pod, c, subject, err.Error(), "See the device plugin's log on this node; the container is tried again")
	r.Err = err
	var unknown *cdi.UnknownError
	var stale *cdi.StaleError
	switch {
	case errors.As(err, &unknown) && unknown.Name.Kind != cdi.KindGPU:
		r.Subject = fmt.Sprintf("device %q", unknown.Name)
		r.Next = "The node has no such device: take the variable that asks for it out of the pod, or place the pod on a node that has one"
	case errors.As(err, &unknown):
		r.Subject = fmt.Sprintf("device %q", unknown.Name)
		r.Next = "The card may have left the node, or the device plugin has not written its spec yet: see its log and /readyz. The container is tried again; delete the pod to have it placed elsewhere"
	case errors.As(err, &stale):
		r.Next = "The driver has changed under the node, or was removed: see the device plugin's log and /readyz. The container is tried again"
	}
	return r
}

// capabilities reads NVIDIA_DRIVER_CAPABILITIES. "all" means all that are
// allowed; one that is named and not allowed refuses the container, which could
// not do what it was made for.
func (i *Injector) capabilities(pod *api.PodSandbox, c *api.Container) ([]cdi.Capability, error) {
	values := lookup(c.GetEnv(), envCapabilities)
	if len(values) == 0 || values[len(values)-1] == "" {
		return i.allowed(cdi.DefaultCapabilities()), nil
	}
	text := values[len(values)-1]
	subject := fmt.Sprintf("environment variable %s=%q", envCapabilities, text)
	caps, err := cdi.ParseCapabilities(text)
	if err != nil {
		r := refuse(pod, c, subject, err.Error(), "Correct it in the pod or in the image")
		r.Err = err
		return nil, r
	}
	if slices.Contains(strings.Split(text, ","), cdi.DeviceAll) {
		return i.allowed(caps), nil
	}
	for _, cap := range caps {
		if !slices.Contains(i.Policy.Capabilities, cap) {
			return nil, refuse(pod, c, subject, fmt.Sprintf("capability %q is not allowed on this node, which allows %v", cap, i.Policy.Capabilities),
				"Ask for less, or have the administrator allow it with --allowed-capabilities")
		}
	}
	return caps, nil
}

func (i *Injector) allowed(caps []cdi.Capability) []cdi.Capability {
	var out []cdi.Capability
	for _, c := range caps {
		if slices.Contains(i.Policy.Capabilities, c) {
			out = append(out, c)
		}
	}
	return out
}

// extraKinds are the devices beside GPUs that a container with a GPU asks for
// by NVIDIA's variables. IMEX channels are not among them: a channel separates
// tenants, so its number cannot be the pod's choice.
func extraKinds(c *api.Container) []cdi.Name {
	var out []cdi.Name
	for _, k := range []struct{ env, kind string }{
		{"NVIDIA_GDS", cdi.KindGDS}, {"NVIDIA_GDRCOPY", cdi.KindGDRCopy}, {"NVIDIA_MOFED", cdi.KindMOFED}, {"NVIDIA_NVSWITCH", cdi.KindNVSwitch},
	} {
		if values := lookup(c.GetEnv(), k.env); len(values) > 0 && values[len(values)-1] == "enabled" {
			out = append(out, cdi.Name{Kind: k.kind, Device: cdi.DeviceAll})
		}
	}
	return out
}

// lookup returns every value of a variable, in order.
func lookup(env []string, key string) []string {
	var out []string
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok && k == key {
			out = append(out, v)
		}
	}
	return out
}
