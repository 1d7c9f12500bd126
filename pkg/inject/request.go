package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// RequestPrefix starts the keys of a pod's annotations that ask for something
// which no resource stands for. They are requests: what a pod gets by them is
// the administrator's decision.
const RequestPrefix = "request." + cdi.Vendor + "/"

// RequestDevices asks for every card of the node, with the value "all": for each
// container of the pod, or with "." and a container's name behind it for that
// one. It is for exporters and validators, which look at cards that others hold.
const RequestDevices = RequestPrefix + "devices"

// CarrierRequest is how the names of a management container come.
const CarrierRequest cdi.Carrier = "request"

// requested tells whether the container may have every card, and asks for it.
func (i *Injector) requested(pod *api.PodSandbox, c *api.Container) (bool, error) {
	asked := false
	for _, key := range slices.Sorted(maps.Keys(pod.GetAnnotations())) {
		if !strings.HasPrefix(key, RequestPrefix) {
			continue
		}
		value, subject := pod.GetAnnotations()[key], fmt.Sprintf("annotation %q", key)
		name, ofOne := strings.CutPrefix(key, RequestDevices+".")
		switch {
		case key != RequestDevices && !ofOne:
			return false, refuse(pod, c, subject, "there is no such request", fmt.Sprintf("Use %q, or %q with a container's name behind it", RequestDevices, RequestDevices+"."))
		case value != cdi.DeviceAll:
			return false, refuse(pod, c, subject, fmt.Sprintf("it asks for %q, and only %q can be asked for", value, cdi.DeviceAll), "Ask for single GPUs in resources.limits")
		case !slices.Contains(i.Policy.ManagementNamespaces, pod.GetNamespace()):
			return false, refuse(pod, c, subject, fmt.Sprintf("pods of namespace %q may not have every card of this node", pod.GetNamespace()),
				"Remove it and ask for GPUs in resources.limits, or have the administrator list the namespace in --management-namespaces")
		}
		asked = asked || !ofOne || name == c.GetName()
	}
	return asked, nil
}

// everything names every healthy device.
func (i *Injector) everything(d *Decision) {
	d.Carrier, d.Names = CarrierRequest, nil
	for _, name := range slices.Sorted(slices.Values(i.Devices())) {
		if why := i.Health(name); why != "" {
			d.Skipped = append(d.Skipped, fmt.Sprintf("device %q: %s", name, why))
			continue
		}
		d.Names = append(d.Names, cdi.Name{Kind: cdi.KindGPU, Device: name})
	}
}
