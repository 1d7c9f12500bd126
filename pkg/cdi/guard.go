package cdi

import (
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// GuardPath is where the guard is mounted in a container: nothing can be
// mounted below /proc, so runc refuses to start a container that still has it.
// Its name is the advice that the error then shows.
const GuardPath = "/proc/nri-gpu-was-not-running-when-this-container-was-created"

// GuardMountSource is the host path of the guard where the kubelet carries it
// as a mount: a runtime creates a directory for a source that does not exist.
const GuardMountSource = "/dev/null"

// guardSpecSource is the host path of the guard in a CDI spec. It never exists,
// which makes the mount fail for a second reason.
const guardSpecSource = "/nri-gpu-was-not-running-when-this-container-was-created"

// GuardSpec is the spec of KindGPU that a runtime finds: each device has the
// guard and nothing else. It returns nil when there is no device, since CDI
// does not allow a spec without one.
func GuardSpec(devices []string) *specs.Spec {
	if len(devices) == 0 {
		return nil
	}
	spec := &specs.Spec{Kind: KindGPU}
	for _, name := range slices.Sorted(slices.Values(devices)) {
		spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: specs.ContainerEdits{
			Mounts: []*specs.Mount{{HostPath: guardSpecSource, ContainerPath: GuardPath, Options: []string{"ro", "bind"}}},
		}})
	}
	return spec
}
