//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// mounting is a pod without a GPU that mounts a path of the host's.
func mounting(name, host, at string) *corev1.Pod {
	c := container("main", 0)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "host", MountPath: at})
	p := pod(name, c)
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}})
	return p
}

func TestTheHostsDevicesAsAVolumeGiveNoCard(t *testing.T) {
	create(t, mounting("host-dev", filepath.Join(cluster.Node.Roots.Dev, "dev"), "/host-dev"))
	requireExactly(t, running(t, "host-dev"), "main", 0)
	c, err := harness.Container(t.Context(), "host-dev", "main")
	require.NoError(t, err)
	_, err = harness.Exec(t.Context(), c.GetId(), "/bin/sh", "-c", "exec 3<>/host-dev/nvidia0")
	require.ErrorContains(t, err, "Operation not permitted")
}

func TestAVolumeOverTheGuardsPathIsRefused(t *testing.T) {
	create(t, mounting("over-guard", "/dev/null", cdi.GuardPath))
	waits(t, "over-guard", "no allocation comes with it")
}

func TestAnEphemeralContainerGetsNoCardOfItsPods(t *testing.T) {
	create(t, pod("debugged", container("main", 1)))
	p := running(t, "debugged")
	requireExactly(t, p, "main", 1)
	c := container("debug", 0)
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Command: c.Command, VolumeMounts: c.VolumeMounts,
	}}}
	_, err := cluster.Client.CoreV1().Pods(namespace).UpdateEphemeralContainers(t.Context(), p.Name, p, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) error {
		_, err := harness.Container(ctx, "debugged", "debug")
		return err
	}))
	requireCards(t, look(t, "debugged", "debug"), nil, 0)
}

func TestTheEnvironmentOfAnImageGivesNoCard(t *testing.T) {
	image, err := cluster.World.PauseImage()
	require.NoError(t, err)
	image.Name, image.Env = "docker.io/library/visible:1", []string{"NVIDIA_VISIBLE_DEVICES=all"}
	file := filepath.Join(cluster.World.Dir, "visible.tar")
	require.NoError(t, image.Archive(t.Context(), file))
	require.NoError(t, cluster.World.Import(t.Context(), cluster.Tools, file))
	c := container("main", 0)
	c.Image = image.Name
	create(t, pod("visible", c))
	running(t, "visible")
	r := look(t, "visible", "main")
	require.Empty(t, r.Nodes)
	require.Equal(t, []string{"NVIDIA_VISIBLE_DEVICES=void"}, r.Env)
}

func TestAVariableThatIsSetTwiceIsRefused(t *testing.T) {
	d := newDirect(t, "", nil)
	d.refused("it is set 2 times", func(c *harness.CRIContainer) {
		c.Env = []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"}
	})
}

func TestANameThatNoSpecHasIsAnErrorThatNamesIt(t *testing.T) {
	d := newDirect(t, "", nil)
	d.refused("nri-gpu.io/gpu=GPU-of-another-node", func(c *harness.CRIContainer) { c.CDIDevices = []string{"nri-gpu.io/gpu=GPU-of-another-node"} })
}

// A request for every card is an administrator's to grant, and here nobody did.
func TestAPodThatAsksForEveryCardIsRefused(t *testing.T) {
	p := pod("exporter", container("main", 0))
	p.Annotations = map[string]string{inject.RequestDevices: "all"}
	create(t, p)
	require.Contains(t, waits(t, "exporter", "nri-gpu refuses"), fmt.Sprintf("pods of namespace %q may not have every card", namespace))
}
