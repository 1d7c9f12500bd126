//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	goldenfile "github.com/nri-gpu/nri-gpu/internal/testutil/golden"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// waits waits until a container that never ran waits for a reason that has a
// text.
func waits(t *testing.T, name, text string) string {
	t.Helper()
	return waitsAfter(t, name, 0, text)
}

// waitsAfter does so for a container that ran a number of times before.
func waitsAfter(t *testing.T, name string, runs int32, text string) string {
	t.Helper()
	var message string
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) error {
		p, err := cluster.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running != nil && s.RestartCount >= runs {
				require.Fail(t, "the container runs", statuses(p))
			}
			if s.State.Waiting != nil && strings.Contains(s.State.Waiting.Message, text) {
				message = s.State.Waiting.Message
				return nil
			}
		}
		return fmt.Errorf("it does not wait for that: %s", statuses(p))
	}))
	return message
}

// golden compares with what a person sees in `kubectl describe pod`.
func golden(t *testing.T, name, text string) {
	t.Helper()
	goldenfile.Equal(t, filepath.Join("testdata", name+".txt"), strings.ReplaceAll(text, cluster.World.Dir, "{{dir}}")+"\n")
}

func TestWithoutNRIGPUNothingStartsAndItStartsByItselfAfterwards(t *testing.T) {
	for name, end := range map[string]func(*harness.Process) error{"stopped": (*harness.Process).Stop, "killed": (*harness.Process).Kill} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, end(cluster.Node.NRI))
			t.Cleanup(func() { restoreNRI(t) })
			create(t, pod("gated-"+name, container("main", 1)))
			golden(t, "nri-gpu-"+name, waits(t, "gated-"+name, "nri-gpu"))
			create(t, pod("free-"+name, container("main", 0)))
			running(t, "free-"+name)
			require.NoError(t, stack.Until(t.Context(), 30*time.Second, func(context.Context) error {
				if _, err := os.Stat(filepath.Join(harness.CDIDir, cdi.SpecFileName(cdi.KindGPU))); err == nil {
					return fmt.Errorf("the guard spec is still there")
				}
				return nil
			}))

			restoreNRI(t)
			requireExactly(t, running(t, "gated-"+name), "main", 1)
		})
	}
}

func restoreNRI(t *testing.T) {
	t.Helper()
	if cluster.Node.NRI.Running() {
		return
	}
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, cluster.Node.StartNRI(ctx))
	require.NoError(t, cluster.Node.Ready(ctx))
}

func TestARunningContainerLivesThroughRestartsOfEverything(t *testing.T) {
	create(t, pod("lives", container("main", 1)))
	p := running(t, "lives")
	before := requireExactly(t, p, "main", 1)

	require.NoError(t, cluster.Node.NRI.Kill())
	require.NoError(t, cluster.Node.Plugin.Kill())
	require.NoError(t, cluster.Node.StartNRI(t.Context()))
	require.NoError(t, cluster.Node.StartPlugin(t.Context()))
	require.NoError(t, cluster.Node.Ready(t.Context()))
	require.NoError(t, cluster.Containerd.Stop())
	var err error
	cluster.Containerd, err = cluster.World.StartContainerd(t.Context(), cluster.Tools)
	require.NoError(t, err)
	require.NoError(t, cluster.Node.Ready(t.Context()), "it reconnects to a runtime that came back")

	require.Equal(t, before, requireExactly(t, p, "main", 1))
	create(t, pod("next", container("main", 7)))
	requireExactly(t, running(t, "next"), "main", 7)
}

func TestACardThatIsLostIsRefusedAndServedWhenItIsBack(t *testing.T) {
	lost, err := fakelib.Load("a100x8")
	require.NoError(t, err)
	for i := range 8 {
		lost.Device(i)["health"] = "lost"
	}
	create(t, pod("holder", container("main", 8)))
	p := running(t, "holder")

	require.NoError(t, cluster.Node.Configure(lost))
	t.Cleanup(func() {
		require.NoError(t, cluster.Node.Configure(cluster.Profile))
		allocatable(t, 8)
	})
	allocatable(t, 0)
	end(t, "holder")
	message := waitsAfter(t, "holder", 1, "nri-gpu refuses")
	require.Contains(t, message, "GPU is lost")

	require.NoError(t, cluster.Node.Configure(cluster.Profile))
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) error {
		p, err = cluster.Client.CoreV1().Pods(namespace).Get(ctx, "holder", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("%s", statuses(p))
		}
		return nil
	}))
	requireExactly(t, p, "main", 8)
}

// allocatable waits until the node has so many GPUs to give.
func allocatable(t *testing.T, gpus int64) {
	t.Helper()
	require.NoError(t, stack.Until(context.WithoutCancel(t.Context()), time.Minute, func(ctx context.Context) error {
		node, err := cluster.Client.CoreV1().Nodes().Get(ctx, harness.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if have := node.Status.Allocatable[corev1.ResourceName(cluster.Node.Resource)]; have.Value() != gpus {
			return fmt.Errorf("%s GPUs are allocatable", have.String())
		}
		return nil
	}))
}

func TestWhatAPodAuthorWritesGivesNoCard(t *testing.T) {
	t.Run("environment", func(t *testing.T) {
		c := container("main", 0)
		c.Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
		create(t, pod("env", c))
		p := running(t, "env")
		requireExactly(t, p, "main", 0)
		require.Equal(t, []string{"NVIDIA_VISIBLE_DEVICES=void"}, look(t, "env", "main").Env)
	})
	t.Run("CDI annotation", func(t *testing.T) {
		p := pod("cdi-annotation", container("main", 0))
		p.Annotations = map[string]string{"cdi.k8s.io/x": "nri-gpu.io/gpu=" + inventory(t).GPUs[0].UUID}
		create(t, p)
		requireExactly(t, running(t, p.Name), "main", 0)
	})
	t.Run("annotation of ours", func(t *testing.T) {
		p := pod("forged", container("main", 0))
		p.Annotations = map[string]string{cdi.AnnotationKey("nvidia.com/gpu"): "v1.e30.AAAA"}
		create(t, p)
		golden(t, "annotation-on-pod", waits(t, p.Name, "nri-gpu refuses"))
	})
}

func TestAVolumeOverTheDriverIsNotWrittenInto(t *testing.T) {
	data := filepath.Join(cluster.World.Dir, "volume")
	require.NoError(t, os.MkdirAll(data, 0o755))
	kind := corev1.HostPathDirectory
	withVolume := func(name, at string) *corev1.Pod {
		c := container("main", 1)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: at})
		p := pod(name, c)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: data, Type: &kind}}})
		return p
	}
	create(t, withVolume("over-libraries", "/usr/lib/x86_64-linux-gnu"))
	require.Contains(t, waits(t, "over-libraries", "nri-gpu refuses"), "the pod's own volume")
	create(t, withVolume("over-firmware", "/lib/firmware"))
	requireExactly(t, running(t, "over-firmware"), "main", 1)
	entries, err := os.ReadDir(data)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestTheRecordSaysWhichContainerHoldsWhichCard(t *testing.T) {
	create(t, pod("held", container("main", 2)))
	allocated := requireExactly(t, running(t, "held"), "main", 2)
	c, err := harness.Container(t.Context(), "held", "main")
	require.NoError(t, err)
	var record struct {
		Pod, Namespace, Name, Carrier string
		Devices                       []string
	}
	require.NoError(t, readJSON(cluster.Node.State.Container(c.GetId()), &record))
	require.Equal(t, []string{"held", namespace, "main", "cdi"}, []string{record.Pod, record.Namespace, record.Name, record.Carrier})
	require.Equal(t, []string{cdi.KindGPU + "=" + allocated[0], cdi.KindGPU + "=" + allocated[1]}, record.Devices)
	remove(t, "held")
	require.NoError(t, stack.Until(t.Context(), 30*time.Second, func(context.Context) error {
		if _, err := os.Stat(cluster.Node.State.Container(c.GetId())); err == nil {
			return fmt.Errorf("the record is still there")
		}
		return nil
	}))
}
