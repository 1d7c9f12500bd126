package deviceplugin

import (
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// allocate answers one container's device IDs: the same IDs, in any order and
// any number of times, have the same answer. Replicas of a card and an ID that
// is given twice are one name. An unhealthy device is answered, and refused
// when the container is created, where the kubelet tries again.
func (p *Plugin) allocate(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	names, err := p.qualifiedNames(ids)
	if err != nil || len(names) == 0 {
		return &pluginapi.ContainerAllocateResponse{}, err
	}
	log := p.cfg.Log.WithFields(logrus.Fields{"resource": p.cfg.Resource, "device": names})
	log.Info("allocated")
	p.recent.Add(Allocation{Time: time.Now().UTC(), IDs: unique(ids)})
	if len(names) < len(unique(ids)) {
		log.Warnf("%d replicas are of %d cards: a container gets no more of a card for two replicas of it", len(unique(ids)), len(names))
	}
	if p.cfg.NRI == nil {
		return &pluginapi.ContainerAllocateResponse{CdiDevices: cdiDevices(names)}, nil
	}
	key, value, err := p.cfg.NRI.Annotate(names)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "sign the allocation of %v: %v", names, err)
	}
	// The annotation is there with either carrier, so that a pod that was
	// admitted outlives a runtime which knows no typed names.
	resp := &pluginapi.ContainerAllocateResponse{Annotations: map[string]string{key: value}}
	if p.carrier.typed() {
		resp.CdiDevices = cdiDevices(names)
	} else {
		resp.Mounts = []*pluginapi.Mount{{ContainerPath: cdi.GuardPath, HostPath: cdi.GuardMountSource, ReadOnly: true}}
	}
	return resp, nil
}

func (p *Plugin) qualifiedNames(ids []string) ([]string, error) {
	snap := p.list.load()
	if n := len(unique(ids)); snap.failMultiple && n > 1 {
		return nil, status.Errorf(codes.InvalidArgument,
			"request for %q: %d: maximum request size for shared resources is 1; found %d: more than one share of a card is not a larger share; ask for 1, or have failRequestsGreaterThanOne switched off", p.cfg.Resource, n, n)
	}
	var names []string
	for _, id := range ids {
		uuid := uuidOf(id)
		if !snap.uuids[uuid] {
			return nil, status.Errorf(codes.InvalidArgument,
				"device %q of resource %q was never listed by this device plugin: the kubelet's record is of another node or an earlier card; delete the pod, so that it is given a card that exists", id, p.cfg.Resource)
		}
		names = append(names, cdi.KindGPU+"="+cdi.DeviceName(uuid))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func cdiDevices(names []string) []*pluginapi.CDIDevice {
	out := make([]*pluginapi.CDIDevice, 0, len(names))
	for _, name := range names {
		out = append(out, &pluginapi.CDIDevice{Name: name})
	}
	return out
}
