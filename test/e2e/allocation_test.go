//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

func TestAPodGetsExactlyTheGPUsThatItAskedFor(t *testing.T) {
	for _, gpus := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			name := fmt.Sprintf("gpus-%d", gpus)
			create(t, pod(name, container("main", gpus)))
			requireExactly(t, running(t, name), "main", gpus)
		})
	}
}

func TestAPodWithoutAGPUGetsNothing(t *testing.T) {
	create(t, pod("none", container("main", 0)))
	requireExactly(t, running(t, "none"), "main", 0)
}

func TestTheSchedulerPlacesByGPUs(t *testing.T) {
	create(t, pod("six", container("main", 6)))
	running(t, "six")
	create(t, pod("three", container("main", 3)))
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) error {
		p, err := cluster.Client.CoreV1().Pods(namespace).Get(ctx, "three", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				require.Contains(t, c.Message, "Insufficient nvidia.com/gpu")
				return nil
			}
		}
		return fmt.Errorf("it is not refused yet: %v", p.Status.Conditions)
	}))
	remove(t, "six")
	requireExactly(t, running(t, "three"), "main", 3)
}

func TestTwoContainersOfOnePodGetTheirOwn(t *testing.T) {
	create(t, pod("pair", container("a", 1), container("b", 2), container("c", 0)))
	p := running(t, "pair")
	a, b := requireExactly(t, p, "a", 1), requireExactly(t, p, "b", 2)
	require.NotContains(t, b, a[0])
	requireExactly(t, p, "c", 0)
}

func TestAnInitContainerAndASidecarGetTheirs(t *testing.T) {
	setup := container("setup", 2)
	setup.Command = []string{"/bin/sh", "-c", "/probe/probe > /dev/termination-log"}
	setup.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	// The message that the kubelet keeps has 4096 bytes, less than a report.
	setup.Command[2] = "/probe/probe | python3 -c 'import json,sys; r=json.load(sys.stdin); print(json.dumps({k: r[k] for k in (\"nodes\",\"dlopen\",\"nvml\")}))' > /dev/termination-log"
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("sidecar", 1)
	sidecar.RestartPolicy = &always
	p := pod("init", container("main", 1))
	p.Spec.InitContainers = []corev1.Container{setup, sidecar}
	create(t, p)
	p = running(t, "init")
	requireExactly(t, p, "sidecar", 1)
	requireExactly(t, p, "main", 1)

	var r report.Report
	message := p.Status.InitContainerStatuses[0].State.Terminated.Message
	require.NoError(t, json.Unmarshal([]byte(message), &r), message)
	allocated, err := harness.Allocated(string(p.UID), "setup", cluster.Node.Resource)
	require.NoError(t, err)
	require.Len(t, allocated, 2)
	require.ElementsMatch(t, allocated, r.NVML)
	require.Equal(t, "ok", r.Dlopen)
}

func TestARestartedContainerGetsTheSameCard(t *testing.T) {
	create(t, pod("again", container("main", 1)))
	p := running(t, "again")
	before := requireExactly(t, p, "main", 1)
	end(t, "again")
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) (err error) {
		p, err = cluster.Client.CoreV1().Pods(namespace).Get(ctx, "again", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("restarted %d times: %s", s.RestartCount, statuses(p))
		}
		return nil
	}))
	require.Equal(t, before, requireExactly(t, p, "main", 1))
}
