//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

const namespace = "default"

// podTimeout bounds the wait for a pod's containers; the kubelet backs off
// between attempts.
const podTimeout = 2 * time.Minute

// container asks for a number of GPUs and runs the probe.
func container(name string, gpus int) corev1.Container {
	c := corev1.Container{
		Name: name, Image: harness.DebianImage("").Name, ImagePullPolicy: corev1.PullNever, Command: []string{"/probe/probe", "wait"},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "probe", MountPath: "/probe", ReadOnly: true},
			{Name: "nvml", MountPath: harness.InsideConfigPath, ReadOnly: true},
		},
	}
	if gpus > 0 {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceName(cluster.Node.Resource): *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	return c
}

func pod(name string, containers ...corev1.Container) *corev1.Pod {
	grace, file := int64(1), corev1.HostPathFile
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			Containers: containers, TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyAlways,
			Volumes: []corev1.Volume{
				{Name: "probe", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(cluster.Bin, "test")}}},
				{Name: "nvml", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: cluster.Node.InsideConfig(), Type: &file}}},
			},
		},
	}
}

// create makes a pod, and removes it when the test ends.
func create(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := cluster.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { remove(t, p.Name) })
	return created
}

func remove(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	zero := int64(0)
	_ = cluster.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	err := stack.Until(ctx, time.Minute, func(ctx context.Context) error {
		all, err := harness.Containers(ctx)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.GetLabels()["io.kubernetes.pod.name"] == name && c.GetState().String() == "CONTAINER_RUNNING" {
				return fmt.Errorf("container %s still runs", c.GetMetadata().GetName())
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// running waits until every container of a pod runs.
func running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	err := stack.Until(t.Context(), podTimeout, func(ctx context.Context) (err error) {
		if p, err = cluster.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod is %s: %s", p.Status.Phase, statuses(p))
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running == nil {
				return fmt.Errorf("not all containers run: %s", statuses(p))
			}
		}
		return nil
	})
	require.NoError(t, err)
	return p
}

func statuses(p *corev1.Pod) string {
	var out []string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil:
			out = append(out, s.Name+": "+s.State.Waiting.Reason+": "+s.State.Waiting.Message)
		case s.State.Terminated != nil:
			out = append(out, s.Name+": "+s.State.Terminated.Reason+": "+s.State.Terminated.Message)
		}
	}
	return p.Status.Reason + " " + p.Status.Message + " " + strings.Join(out, "; ")
}

// look runs the probe in a container.
func look(t *testing.T, pod, name string) report.Report {
	t.Helper()
	var r report.Report
	err := stack.Until(t.Context(), 30*time.Second, func(ctx context.Context) error {
		c, err := harness.Container(ctx, pod, name)
		if err != nil {
			return err
		}
		text, err := harness.Exec(ctx, c.GetId(), "/probe/probe")
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(text), &r)
	})
	require.NoError(t, err)
	return r
}

// end makes a pod's container end, as a program that crashes would. Whether the
// command itself is told to have succeeded is a race with its container's end;
// the caller sees what follows.
func end(t *testing.T, pod string) {
	t.Helper()
	c, err := harness.Container(t.Context(), pod, "main")
	require.NoError(t, err)
	_, _ = harness.Exec(t.Context(), c.GetId(), "/bin/sh", "-c", "kill 1")
}

// inventory is what the device plugin published.
func inventory(t *testing.T) device.Inventory {
	t.Helper()
	var inv device.Inventory
	require.NoError(t, readJSON(cluster.Node.State.Inventory(), &inv))
	return inv
}

// requireExactly holds a container to what it was allocated: those cards and no
// other, by their nodes, by mknod, by an NVML client and by its own loader.
func requireExactly(t *testing.T, p *corev1.Pod, name string, gpus int) []string {
	t.Helper()
	allocated, err := harness.Allocated(string(p.UID), name, cluster.Node.Resource)
	require.NoError(t, err)
	requireCards(t, look(t, p.Name, name), allocated, gpus)
	return allocated
}

func requireCards(t *testing.T, r report.Report, allocated []string, gpus int) {
	t.Helper()
	require.Len(t, allocated, gpus)
	inv := inventory(t)
	mine := map[uint32]bool{}
	for _, uuid := range allocated {
		a, ok := inv.Find(uuid)
		require.True(t, ok)
		mine[uint32(a.GPU.Minor)] = true
	}
	nodes := map[string]report.Node{}
	for _, n := range r.Nodes {
		nodes[n.Path] = n
		require.True(t, n.Allowed(), "%s: %s", n.Path, n.Open)
	}
	for i := range inv.GPUs {
		_, there := nodes[fmt.Sprintf("/dev/nvidia%d", inv.GPUs[i].Minor)]
		require.Equal(t, mine[uint32(inv.GPUs[i].Minor)], there, "/dev/nvidia%d", inv.GPUs[i].Minor)
	}
	for _, n := range r.Made {
		if mine[n.Minor] {
			require.True(t, n.Allowed(), "card %d made by mknod: %s", n.Minor, n.Open)
		} else {
			require.Equal(t, "EPERM", n.Open, "card %d made by mknod", n.Minor)
		}
	}
	if gpus == 0 {
		require.Empty(t, r.Nodes)
		require.NotContains(t, r.Libraries, "libcuda.so.1")
		return
	}
	seen := slices.Clone(r.NVML)
	slices.Sort(seen)
	require.Equal(t, allocated, seen, "a client that nobody here wrote lists the allocated cards")
	require.Equal(t, "ok", r.Dlopen)
	require.Equal(t, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", r.Libraries["libcuda.so.1"])
}
