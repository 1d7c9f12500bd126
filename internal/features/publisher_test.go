package features_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

var (
	onNode    = []string{"metadata", "labels"}
	onFeature = []string{"spec", "labels"}
	soon      = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.5, Steps: 5, Cap: 100 * time.Millisecond}
)

func publisher(sinks ...features.Sink) *features.Publisher {
	return features.New(features.Options{Sinks: sinks, Backoff: soon, Log: quiet()})
}

func (s *apiServer) api() features.API {
	return features.API{Client: s.client(), Node: "node-1", CallTimeout: 5 * time.Second}
}

func want(inv device.Inventory) map[string]string {
	return features.Labels(&inv, &features.Sharing{}, "")
}

func TestTheFileIsWrittenOnChangeAndStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "features.d", "nri-gpu")
	inv := node("Tesla T4", "Tesla T4")
	p := publisher(features.File(path))
	require.NoError(t, p.Publish(t.Context(), inv))
	first, err := os.Stat(path)
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, features.Encode(want(inv)), string(data))
	require.Contains(t, string(data), "nvidia.com/gpu.count=2\n")

	require.NoError(t, p.Publish(t.Context(), inv))
	require.NoError(t, publisher(features.File(path)).Publish(t.Context(), inv), "a restart")
	second, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(first, second), "it would be another file if it had been written")

	inv.GPUs[0].Health = device.Health{Reason: "lost"}
	require.NoError(t, p.Publish(t.Context(), inv))
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), "nvidia.com/gpu.count=1\n")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing that the worker would read besides")
}

func TestAnObjectThatSomebodyRemovedOrChangedComesBack(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	inv := node("Tesla T4")
	sink := features.NodeFeature(s.api(), "gpu")
	sink.Verify = time.Millisecond
	p := publisher(sink)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { p.Run(ctx) })
	defer run.Wait()
	defer cancel()
	p.Update(inv)
	written := func(n int) func() bool {
		return func() bool { _, writes := s.counts(featurePath); return writes == n && s.object(featurePath) != nil }
	}
	require.Eventually(t, written(1), 10*time.Second, time.Millisecond)
	s.put(featurePath, nil)
	require.Eventually(t, written(2), 10*time.Second, time.Millisecond)
	s.labelAs("kubectl", featurePath, "nvidia.com/gpu.count", "9", onFeature...)
	require.Eventually(t, written(3), 10*time.Second, time.Millisecond)
	s.requireLabels(want(inv), featurePath, onFeature...)
}

func TestAnAnswerThatDoesNotComeIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	over := make(chan struct{})
	s.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-r.Context().Done():
		case <-over:
		}
		return true
	})
	defer close(over)
	api := s.api()
	api.CallTimeout = 50 * time.Millisecond
	path := filepath.Join(t.TempDir(), "nri-gpu")
	begin := time.Now()
	err := publisher(features.File(path), features.Node(api)).Publish(t.Context(), node("Tesla T4"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `read Node "node-1"`)
	require.Less(t, time.Since(begin), 3*time.Second)
	require.FileExists(t, path, "one place does not hold up another")
}

func TestThePlacesTellTheirStateWhileOneHangs(t *testing.T) {
	t.Parallel()
	entered, over := make(chan struct{}), make(chan struct{})
	hangs := features.Sink{Name: "hangs", Write: func(context.Context, map[string]string) (bool, error) {
		close(entered)
		<-over
		return true, nil
	}}
	p := publisher(hangs)
	var publish sync.WaitGroup
	publish.Go(func() { _ = p.Publish(t.Context(), node("Tesla T4")) })
	<-entered
	require.Equal(t, []features.PlaceState{{Name: "hangs"}}, p.State())
	close(over)
	publish.Wait()
	require.Positive(t, p.State()[0].Labels)
}

func TestAPlaceThatFailedIsLeftAloneUntilItsTime(t *testing.T) {
	t.Parallel()
	tries := 0
	broken := features.Sink{Name: "broken", Write: func(context.Context, map[string]string) (bool, error) { tries++; return false, errors.New("no") }}
	p := features.New(features.Options{Sinks: []features.Sink{broken}, Backoff: wait.Backoff{Duration: time.Hour}, Log: quiet()})
	for range 10 {
		require.ErrorContains(t, p.Publish(t.Context(), node("Tesla T4")), "no")
	}
	require.ErrorContains(t, p.Publish(t.Context(), node("NVIDIA A100")), "no")
	require.Equal(t, 1, tries)
}

func TestAFailureIsTriedAgainWithBackoffUntilItWorks(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		respond(w, apierrors.NewInternalError(errors.New("etcd is away")))
		return true
	})
	metrics, err := features.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	p := features.New(features.Options{Sinks: []features.Sink{features.Node(s.api())}, Backoff: soon, Metrics: metrics, Log: quiet()})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { p.Run(ctx) })
	defer run.Wait()
	defer cancel()
	p.Update(node("Tesla T4"))
	reads := func() int { n, _ := s.counts(nodePath); return n }
	require.Eventually(t, func() bool { return reads() >= 4 }, 10*time.Second, time.Millisecond)
	require.Contains(t, p.State()[0].Error, "etcd is away")
	for range 1000 { // asking more often does not try more often
		p.Update(node("Tesla T4"))
	}
	s.intercept(nil)
	require.Eventually(t, func() bool { return p.State()[0].Error == "" }, 10*time.Second, time.Millisecond)
	require.Less(t, reads(), 100)
	s.requireLabels(want(node("Tesla T4")), nodePath, onNode...)
	require.Positive(t, p.State()[0].Labels)
}

func TestADriverThatIsAwayChangesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nri-gpu")
	p := publisher(features.File(path))
	for _, state := range []device.DriverState{
		device.DriverHung, device.DriverFailed, device.DriverNotLoaded, device.DriverVersionMismatch, device.DriverLibraryMissing,
	} {
		require.NoError(t, p.Publish(t.Context(), device.Inventory{Driver: device.Driver{State: state}}))
		require.NoFileExists(t, path)
	}
	require.NoError(t, p.Publish(t.Context(), device.Inventory{Driver: device.Driver{State: device.DriverNoDevices}}))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "nvidia.com/vgpu.present=false\n", string(data))
}

func TestTimestampAndMachine(t *testing.T) {
	t.Parallel()
	r := roots.Roots{Host: t.TempDir()}
	require.Empty(t, features.MachineName(r, ""))
	file := r.Sys("class", "dmi", "id", "product_name")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("PowerEdge XE8545\n"), 0o600))
	var got map[string]string
	sink := features.Sink{Name: "test", Write: func(_ context.Context, labels map[string]string) (bool, error) { got = labels; return true, nil }}
	p := features.New(features.Options{
		Sinks: []features.Sink{sink}, Log: quiet(), Timestamp: time.Unix(1700000000, 0),
		Machine: func() string { return features.MachineName(r, "") },
	})
	require.NoError(t, p.Publish(t.Context(), node("Tesla T4")))
	require.Equal(t, "1700000000", get(got, "gfd.timestamp"))
	require.Equal(t, "PowerEdge-XE8545", get(got, "gpu.machine"))
}

func TestMetricsCountEachPlace(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	metrics, err := features.NewMetrics(reg)
	require.NoError(t, err)
	fail := features.Sink{Name: "broken", Write: func(context.Context, map[string]string) (bool, error) { return false, errors.New("no") }}
	p := features.New(features.Options{
		Sinks: []features.Sink{features.File(filepath.Join(t.TempDir(), "f")), fail}, Metrics: metrics, Log: quiet(),
	})
	require.ErrorContains(t, p.Publish(t.Context(), node("Tesla T4")), "no")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP nri_gpu_deviceplugin_label_writes_total Looks at a place that holds the node's labels, by what they came to.
# TYPE nri_gpu_deviceplugin_label_writes_total counter
nri_gpu_deviceplugin_label_writes_total{place="broken",result="error"} 1
nri_gpu_deviceplugin_label_writes_total{place="broken",result="unchanged"} 0
nri_gpu_deviceplugin_label_writes_total{place="broken",result="written"} 0
nri_gpu_deviceplugin_label_writes_total{place="file",result="error"} 0
nri_gpu_deviceplugin_label_writes_total{place="file",result="unchanged"} 0
nri_gpu_deviceplugin_label_writes_total{place="file",result="written"} 1
# HELP nri_gpu_deviceplugin_labels_published Whether a place holds the newest labels of the node.
# TYPE nri_gpu_deviceplugin_labels_published gauge
nri_gpu_deviceplugin_labels_published{place="broken"} 0
nri_gpu_deviceplugin_labels_published{place="file"} 1
`)))
}
