//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/test/stack"
)

// never is a pod whose container is not started a second time.
func never(name string) *corev1.Pod {
	p := pod(name, container("main", 1))
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	return p
}

// phase waits until a pod is in a phase.
func phase(t *testing.T, name string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) (err error) {
		p, err = cluster.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != want {
			err = fmt.Errorf("it is %s: %s", p.Status.Phase, statuses(p))
		}
		return err
	}))
	return p
}

// docs/fail-closed.md says what these show.
func TestARefusalBeforeOrAtCreationIsNotFinal(t *testing.T) {
	require.NoError(t, cluster.Node.NRI.Stop())
	t.Cleanup(func() { restoreNRI(t) })
	create(t, never("never-waits"))
	waits(t, "never-waits", "nri-gpu")
	restoreNRI(t)
	requireExactly(t, phase(t, "never-waits", corev1.PodRunning), "main", 1)
}

// restoreBoth starts the daemons that a test has stopped.
func restoreBoth(t *testing.T) {
	t.Helper()
	if !cluster.Node.Plugin.Running() {
		require.NoError(t, cluster.Node.StartPlugin(context.WithoutCancel(t.Context())))
	}
	restoreNRI(t)
	require.NoError(t, cluster.Node.Ready(context.WithoutCancel(t.Context())))
	allocatable(t, 8)
}

// neverAcrossKubelet has a pod that is never restarted wait for nri-gpu while the
// kubelet restarts and no device plugin is there, and returns what became of it.
func neverAcrossKubelet(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	require.NoError(t, cluster.Node.NRI.Stop())
	create(t, never(name))
	waits(t, name, "nri-gpu")
	require.NoError(t, cluster.Node.Plugin.Stop())
	t.Cleanup(func() { restoreBoth(t) })
	require.NoError(t, cluster.Kubelet.Stop())
	require.NoError(t, cluster.StartKubelet(t.Context()))
	return phase(t, name, corev1.PodFailed)
}

// The kubelet admits a pod anew whose container has not run when it restarts,
// and refuses it for good when its devices are not there: with either carrier
// before a container is asked for.
func TestAPodThatWaitsWhileTheKubeletRestartsIsRefusedForGood(t *testing.T) {
	p := neverAcrossKubelet(t, "never-restarted")
	require.Equal(t, "UnexpectedAdmissionError", p.Status.Reason, p.Status.Message)
}

// After a restart of the kubelet before the device plugin is registered again,
// PreStartContainer is not asked. The names do not resolve without nri-gpu, and
// that is tried again.
func TestAfterARestartOfTheKubeletNothingStartsWithoutItsCard(t *testing.T) {
	create(t, pod("restarted", container("main", 1)))
	requireExactly(t, running(t, "restarted"), "main", 1)
	require.NoError(t, cluster.Node.Plugin.Stop())
	require.NoError(t, cluster.Node.NRI.Stop())
	t.Cleanup(func() { restoreBoth(t) })
	require.NoError(t, cluster.Kubelet.Stop())
	require.NoError(t, cluster.StartKubelet(t.Context()))
	end(t, "restarted")
	waitsAfter(t, "restarted", 1, "unresolvable CDI devices")

	require.NoError(t, cluster.Node.StartNRI(t.Context()))
	require.NoError(t, cluster.Node.StartPlugin(t.Context()))
	require.NoError(t, cluster.Node.Ready(t.Context()))
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) error {
		p, err := cluster.Client.CoreV1().Pods(namespace).Get(ctx, "restarted", metav1.GetOptions{})
		if err == nil && p.Status.ContainerStatuses[0].State.Running == nil {
			err = fmt.Errorf("%s", statuses(p))
		}
		return err
	}))
	requireExactly(t, phase(t, "restarted", corev1.PodRunning), "main", 1)
}
