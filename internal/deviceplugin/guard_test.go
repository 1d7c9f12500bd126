package deviceplugin

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/health/grpc_health_v1"
)

const (
	serving    = grpc_health_v1.HealthCheckResponse_SERVING
	notServing = grpc_health_v1.HealthCheckResponse_NOT_SERVING
)

func listenWithoutAccepting(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
}

func (n *node) writeGuard(age time.Duration) {
	n.t.Helper()
	require.NoError(n.t, os.WriteFile(n.guard, []byte("{}"), 0o600))
	require.NoError(n.t, os.Chtimes(n.guard, time.Time{}, time.Now().Add(-age)))
}

func (n *node) guardGone() bool {
	_, err := os.Stat(n.guard)
	return os.IsNotExist(err)
}

func (n *node) requireGuardGoes() {
	n.t.Helper()
	require.Eventually(n.t, n.guardGone, 10*time.Second, time.Millisecond)
}

// requireGuardStays looks for as long as several looks of the keeper take.
func (n *node) requireGuardStays() {
	n.t.Helper()
	require.Never(n.t, n.guardGone, 8*n.keeper.settle, time.Millisecond)
}

func TestTheGuardStaysWhileNRIGPUServesAndWhenThePluginEnds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.startNRIGPU(serving)
	n.writeGuard(time.Hour)
	stop := n.run()
	n.requireGuardStays()
	stop()
	require.FileExists(t, n.guard)
}

func TestTheGuardGoesWithNRIGPU(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*nriGPU){
		"it is killed":             (*nriGPU).kill,
		"it loses its connection":  func(g *nriGPU) { g.SetServingStatus("", notServing) },
		"it announces its own end": func(g *nriGPU) { g.Shutdown() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			nri := n.startNRIGPU(notServing)
			n.run()
			nri.SetServingStatus("", serving)
			n.writeGuard(time.Hour)
			n.requireGuardStays()
			n.writeGuard(0) // young, and removed at once all the same
			end(nri)
			n.requireGuardGoes()
		})
	}
}

func (g *nriGPU) kill() { g.stop() }

func TestAGuardThatWasLeftBehindIsRemoved(t *testing.T) {
	t.Parallel()
	t.Run("nri-gpu does not run", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.writeGuard(time.Hour)
		n.run()
		n.requireGuardGoes()
	})
	t.Run("nri-gpu is not connected", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.startNRIGPU(notServing)
		n.writeGuard(time.Hour)
		n.run()
		n.requireGuardGoes()
	})
}

func TestAYoungGuardIsThatOfAnNRIGPUWhichIsAboutToServe(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	nri := n.startNRIGPU(notServing)
	n.run()
	n.writeGuard(-time.Hour)
	n.requireGuardStays()
	nri.SetServingStatus("", serving)
	n.requireGuardStays()
}

func TestTheGuardGoesAgainAfterNRIGPUCameBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run()
	for range 3 {
		nri := n.startNRIGPU(serving)
		n.writeGuard(0)
		require.Eventually(t, func() bool { return gate{n.nri.HealthSocket}.check(t.Context()) == nil }, 10*time.Second, time.Millisecond)
		n.requireGuardStaysYoung()
		nri.stop()
		n.requireGuardGoes()
	}
}

// requireGuardStaysYoung gives the keeper time to open its stream.
func (n *node) requireGuardStaysYoung() {
	n.t.Helper()
	n.writeGuard(-time.Hour)
	n.requireGuardStays()
	n.writeGuard(0)
}
