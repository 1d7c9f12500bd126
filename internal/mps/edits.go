package mps

import (
	"fmt"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// NotReadyError says that a resource cannot be used at the moment.
type NotReadyError struct{ Resource, Reason string }

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("MPS does not serve %q: %s", e.Resource, e.Reason)
}

// ContainerEdits returns what a container needs that has a replica of a
// resource, and the paths among them without which it must not start (for
// cdi.RequiredAnnotation). /dev/shm is not among those: a volume that the pod
// has there stays, and must then be one that the daemon shares. The edits are
// those of the present epoch, so they are asked for again with every Changed.
// The error is a NotReadyError.
func (m *Manager) ContainerEdits(resource string) (edits specs.ContainerEdits, required []string, err error) {
	m.mu.Lock()
	w := m.workers[resource]
	m.mu.Unlock()
	if w == nil {
		return edits, nil, &NotReadyError{resource, "it is not shared by MPS here"}
	}
	w.mu.Lock()
	status, e := w.status, w.present
	w.mu.Unlock()
	if !status.Ready || e == nil {
		return edits, nil, &NotReadyError{resource, status.Reason}
	}
	pipe := m.cfg.Mapping.ToHost(e.pipe)
	// A client writes to the sockets, and makes files in shared memory.
	options := []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"}
	return specs.ContainerEdits{
		Env: []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe},
		Mounts: []*specs.Mount{
			{HostPath: pipe, ContainerPath: pipe, Options: options},
			{HostPath: m.cfg.Mapping.ToHost(e.shm), ContainerPath: devShm, Options: options},
		},
	}, []string{pipe}, nil
}
