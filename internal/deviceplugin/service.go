package deviceplugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// service answers the kubelet on one socket.
type service struct {
	pluginapi.UnimplementedDevicePluginServer
	plugin *Plugin
	// streams learns of the streams on this socket.
	streams *streams
	// done ends the streams when it is closed.
	done <-chan struct{}
}

// GetDevicePluginOptions is asked within Register, and what it answers counts,
// not what the Register request says.
func (s *service) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return s.plugin.options(), nil
}

func (p *Plugin) options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{
		// Where the runtime injects there is nobody to wait for.
		PreStartRequired:                p.cfg.NRI != nil,
		GetPreferredAllocationAvailable: true,
	}
}

// ListAndWatch sends the list now and whenever it changes. A stream that is
// slower than the changes gets the latest.
func (s *service) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	opened := false
	for {
		snap := s.plugin.list.load()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: snap.devices}); err != nil {
			return err
		}
		if !opened {
			opened = true
			s.streams.opened()
			defer s.streams.closed()
		}
		select {
		case <-snap.replaced:
		case <-stream.Context().Done():
			return nil
		case <-s.done:
			return status.Error(codes.Unavailable, "the device plugin closes this socket")
		}
	}
}

// Allocate answers each container's devices with their names.
func (s *service) Allocate(_ context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	start := time.Now()
	resp := &pluginapi.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		answer, err := s.plugin.allocate(c.GetDevicesIds())
		s.plugin.metrics.allocated(start, err)
		if err != nil {
			s.plugin.cfg.Log.WithError(err).Error("allocation refused")
			return nil, err
		}
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
	}
	return resp, nil
}

// GetPreferredAllocation proposes devices that are near to each other.
func (s *service) GetPreferredAllocation(_ context.Context, req *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	resp := &pluginapi.PreferredAllocationResponse{}
	snap := s.plugin.list.load()
	for _, c := range req.GetContainerRequests() {
		ids := prefer(snap.topology, snap.packed, c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		resp.ContainerResponses = append(resp.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return resp, nil
}

// PreStartContainer holds a container back while nri-gpu is not connected to
// the runtime: the kubelet shows the error in the pod's events and tries again.
func (s *service) PreStartContainer(ctx context.Context, req *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	nri := s.plugin.cfg.NRI
	if nri == nil {
		return &pluginapi.PreStartContainerResponse{}, nil
	}
	err := gate{nri.HealthSocket}.check(ctx)
	s.plugin.metrics.prestarts.WithLabelValues(result(err)).Inc()
	if err != nil {
		return nil, status.Error(codes.Unavailable, s.held(err, req.GetDevicesIds()))
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// held is what `kubectl describe pod` shows. nri-gpu serves nothing while the
// driver does not: then that is the reason, which the devices have.
func (s *service) held(err error, ids []string) string {
	snap := s.plugin.list.load()
	for _, id := range ids {
		if h, listed := snap.health[id]; listed && !h.Healthy {
			return fmt.Sprintf("the container waits for its GPU %s: %s; the kubelet tries again by itself", id, h.Reason)
		}
	}
	return fmt.Sprintf("the container waits for nri-gpu, which gives it its GPU: %v; "+
		"look at nri-gpu on this node (journalctl -u nri-gpu, or its pod's log); the kubelet tries again by itself", err)
}
