//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// switchRuntime puts one containerd into the place of the other, as a
// downgrade or an upgrade of the node does, and waits until the daemons have
// noticed by themselves.
func switchRuntime(t *testing.T, start func(context.Context, harness.Tools) (*harness.Process, error), tools harness.Tools, carrier cdi.Carrier) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, cluster.Containerd.Stop())
	var err error
	cluster.Containerd, err = start(ctx, cluster.Tools)
	require.NoError(t, err)
	require.NoError(t, cluster.ImportImages(ctx, tools))
	require.NoError(t, stack.Until(ctx, time.Minute, func(context.Context) error {
		got, err := cdi.ReadCarrier(state.DataDir("/var/lib/nri-gpu").Carrier())
		if err == nil && got != carrier {
			err = fmt.Errorf("the carrier is %s", got)
		}
		return err
	}))
	require.NoError(t, cluster.Node.Ready(ctx))
	require.NoError(t, stack.Until(ctx, time.Minute, func(ctx context.Context) error {
		text, err := harness.Body(ctx, "http://"+harness.PluginAddress+"/debug/state")
		if err == nil && !strings.Contains(text, `"carrier": "`+string(carrier)+`"`) {
			err = fmt.Errorf("the device plugin does not know yet: %s", text)
		}
		return err
	}))
}

// The signed annotation on a containerd that shows plugins no typed list.
func TestContainerd17(t *testing.T) {
	create(t, pod("outlives", container("main", 1)))
	p := running(t, "outlives")
	before := requireExactly(t, p, "main", 1)

	switchRuntime(t, cluster.World.StartContainerd17, cluster.Tools.Containerd17(), cdi.CarrierAnnotation)
	t.Cleanup(func() {
		switchRuntime(t, cluster.World.StartContainerd, cluster.Tools, cdi.CarrierCDI)
	})
	t.Run("a pod outlives the downgrade", func(t *testing.T) {
		require.Equal(t, before, requireExactly(t, runsAgain(t, "outlives"), "main", 1))
	})
	t.Run("pods get exactly their cards", func(t *testing.T) {
		create(t, pod("older", container("a", 2), container("b", 1), container("c", 0)))
		p := running(t, "older")
		requireExactly(t, p, "a", 2)
		requireExactly(t, p, "b", 1)
		requireExactly(t, p, "c", 0)
		c, err := harness.Container(t.Context(), "older", "a")
		require.NoError(t, err)
		data, err := os.ReadFile(cluster.Node.State.Container(c.GetId()))
		require.NoError(t, err)
		require.Contains(t, string(data), `"carrier": "annotation"`)

		require.NoError(t, cluster.Containerd.Stop())
		cluster.Containerd, err = cluster.World.StartContainerd17(t.Context(), cluster.Tools)
		require.NoError(t, err)
		require.NoError(t, cluster.Node.Ready(t.Context()))
		requireExactly(t, p, "a", 2)
	})
	t.Run("without nri-gpu nothing starts, and it starts by itself afterwards", func(t *testing.T) {
		require.NoError(t, cluster.Node.NRI.Kill())
		t.Cleanup(func() { restoreNRI(t) })
		create(t, pod("gated", container("main", 1)))
		waits(t, "gated", "the container waits for nri-gpu")
		restoreNRI(t)
		requireExactly(t, running(t, "gated"), "main", 1)
	})
	t.Run("the guard alone", func(t *testing.T) { thirdLayer(t, signed(t)) })
	t.Run("forgeries", forgeries)
}

// runsAgain waits until a pod whose runtime was exchanged runs on the new one.
func runsAgain(t *testing.T, name string) (p *corev1.Pod) {
	t.Helper()
	require.NoError(t, stack.Until(t.Context(), podTimeout, func(ctx context.Context) (err error) {
		if _, err = harness.Container(ctx, name, "main"); err != nil {
			return err
		}
		p, err = cluster.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.ContainerStatuses[0].State.Running == nil {
			err = fmt.Errorf("%s", statuses(p))
		}
		return err
	}))
	return p
}
