//go:build e2e

package guest

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// card is the name that the kubelet would be given for a card of the machine.
func card(n int) string { return "nri-gpu.io/gpu=" + uuid(n) }

func uuid(n int) string {
	return "GPU-a1000000-0000-4000-8000-00000000000" + string(rune('0'+n))
}

func runtime(t *testing.T) cri.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+harness.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

// container is a container that was started through CRI, as the kubelet does.
type container struct {
	t  *testing.T
	r  cri.RuntimeServiceClient
	id string
}

// attempts tells the sandboxes of one pod apart: containerd keeps the name of
// one that failed until its test ends.
var attempts atomic.Uint32

// start runs the probe in a container that was allocated cards. Its pod is
// removed with the test. As the kubelet, it tries a creation again: containerd
// reads a spec in /run/cdi some time after it was written.
func start(t *testing.T, name string, cards ...string) *container {
	t.Helper()
	var c *container
	eventually(t, "container "+name+" runs", func(ctx context.Context) (err error) {
		c, err = create(ctx, t, name, cards...)
		return err
	})
	return c
}

func create(ctx context.Context, t *testing.T, name string, cards ...string) (*container, error) {
	t.Helper()
	r := runtime(t)
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name, Attempt: attempts.Add(1)},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    "pods.slice",
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}},
		},
	}
	pod, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()})
		require.NoError(t, err)
		_, err = r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.GetPodSandboxId()})
		require.NoError(t, err)
	})
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: layout.Image}, Command: []string{"/probe", "wait"},
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpuShares: 100}},
	}
	for _, c := range cards {
		config.CDIDevices = append(config.CDIDevices, &cri.CDIDevice{Name: c})
	}
	made, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: pod.GetPodSandboxId(), Config: config, SandboxConfig: sandbox})
	if err != nil {
		return nil, err
	}
	if _, err := r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		return nil, err
	}
	return &container{t: t, r: r, id: made.GetContainerId()}, nil
}

// look runs the probe inside.
func (c *container) look() report.Report {
	c.t.Helper()
	return look(c.t, c.id)
}

func look(t *testing.T, id string) report.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := harness.Exec(ctx, id, "/probe")
	require.NoError(t, err)
	var r report.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	return r
}

// update changes the resources of the running container, upon which runc sets
// its device rules anew.
func (c *container) update(shares int64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	_, err := c.r.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: c.id, Linux: &cri.LinuxContainerResources{CpuShares: shares},
	})
	require.NoError(c.t, err)
}

// holds requires that a container has the given cards of the machine, each of
// which opens, and that every other one is refused by the kernel.
func holds(t *testing.T, r report.Report, minors ...uint32) {
	t.Helper()
	require.Equal(t, opens("ok", minors), openings(r))
	nodes := map[uint32]string{}
	for _, n := range r.Nodes {
		if n.Major == 195 && n.Minor < 16 {
			nodes[n.Minor] = n.Open
		}
		require.Equal(t, "ok", n.Open, n.Path)
	}
	want := map[uint32]string{}
	for _, m := range minors {
		want[m] = "ok"
	}
	require.Equal(t, want, nodes)
}

// openings are what the cards give that the probe made by mknod.
func openings(r report.Report) map[uint32]string {
	out := map[uint32]string{}
	for _, n := range r.Made {
		out[n.Minor] = n.Open
	}
	return out
}

// opens is what openings are when some cards give a result and all others are
// refused.
func opens(result string, minors []uint32) map[uint32]string {
	out := map[uint32]string{}
	for m := range uint32(16) {
		out[m] = "EPERM"
	}
	for _, m := range minors {
		out[m] = result
	}
	return out
}
