package inject_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

func management(annotations map[string]string) *api.PodSandbox {
	p := pod()
	p.Namespace, p.Annotations = "gpu-monitoring", annotations
	return p
}

func TestAManagementContainerGetsEveryCardThatIsUsable(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, key := range []string{"request.nri-gpu.io/devices", "request.nri-gpu.io/devices.main"} {
		d, err := n.Decide(management(map[string]string{key: "all"}), container())
		require.NoError(t, err)
		require.Equal(t, inject.CarrierRequest, d.Carrier)
		require.Len(t, d.Names, len(n.resolver.Devices()))
		require.Equal(t, []string{`device "GPU-sick": nvmlDeviceGetHandleByIndex: GPU is lost`}, d.Skipped)
		require.NotEmpty(t, d.Adjustment.GetLinux().GetDevices())
	}
	d, err := n.Decide(management(map[string]string{"request.nri-gpu.io/devices.other": "all"}), container())
	require.NoError(t, err)
	require.Nil(t, d, "it is another container's request")
}

func TestOneThatWasAllocatedACardAndAsksForAllHasItsGuardTakenAway(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d, err := n.Decide(management(map[string]string{"request.nri-gpu.io/devices": "all"}), container(gpu0))
	require.NoError(t, err)
	require.Len(t, d.Names, len(n.resolver.Devices()))
	require.Contains(t, d.Adjustment.String(), "-/proc/nri-gpu-was-not-running")
}

func TestARequestThatIsNotAllowedIsAnErrorAndNoSilence(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for want, annotations := range map[string]map[string]string{
		`pods of namespace "ml" may not have every card`: {"request.nri-gpu.io/devices": "all"},
		`it asks for "GPU-0"`:                            {"request.nri-gpu.io/devices": "GPU-0"},
		"there is no such request":                       {"request.nri-gpu.io/gpus": "all"},
	} {
		p := pod()
		p.Annotations = annotations
		_, err := n.Decide(p, container())
		var refusal *inject.Refusal
		require.ErrorAs(t, err, &refusal)
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, refusal.Next)
	}
}

func privileged() *api.Container {
	c := container()
	c.Linux = &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/null"}, {Path: "/dev/nvidia0"}, {Path: "/dev/nvidiactl"}}}
	return c
}

func TestAPrivilegedContainerIsReportedOrRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d, err := n.Decide(pod(), privileged())
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/nvidia0", "/dev/nvidiactl"}, d.Unallocated)
	require.Nil(t, d.Adjustment, "nothing is changed")

	n.Policy.DenyUnallocated = true
	_, err = n.Decide(pod(), privileged())
	require.ErrorContains(t, err, `device node "/dev/nvidia0": the container has it without an allocation`)
	exempt := pod()
	exempt.Namespace = "gpu-operator"
	d, err = n.Decide(exempt, privileged())
	require.NoError(t, err)
	require.NotEmpty(t, d.Unallocated)
	d, err = n.Decide(pod(), container())
	require.NoError(t, err)
	require.Nil(t, d)
}
