package deviceplugin

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestASocketsNameIsOursAndFitsIntoAnAddress(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{
		"nvidia.com/gpu", "nvidia.com/" + strings.Repeat("long", 15), "nvidia.com/mig-1g.5gb", "a.b/under_score-1",
	} {
		path, err := socketPath(Config{Resource: resource, KubeletDir: "/var/lib/kubelet/device-plugins"}, time.Now().UnixMilli())
		require.NoError(t, err)
		require.LessOrEqual(t, len(path), maxSocketPath)
		require.True(t, isSocketOf(resource, filepath.Base(path)), "%s", path)
		require.False(t, isSocketOf(resource+"-x", filepath.Base(path)), "%s", path)
		require.False(t, isSocketOf("nvidia.com/other", filepath.Base(path)), "%s", path)
	}
	long := "nvidia.com/" + strings.Repeat("long", 15)
	require.NotEqual(t, socketStem(long), socketStem(long[:len(long)-1]+"x"), "names that are cut are told apart")
	for _, other := range []string{"nri-gpu-gpu.sock", "nri-gpu-gpu-1.sock", "nri-gpu-gpu-1-.sock", "nri-gpu-gpu-x-1.sock", "nri-gpu-gpu-1-1", "kubelet.sock", ""} {
		require.False(t, isSocketOf("nvidia.com/gpu", other), "%s", other)
	}
}

func TestADirectoryWithoutRoomForASocketIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	dir := "/" + strings.Repeat("x", 90)
	_, err := New(Config{Resource: testResource, KubeletDir: dir, Metrics: prometheus.NewRegistry(), Log: quiet()})
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "--kubelet-dir")
}

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	b := backoff{first: 200 * time.Millisecond, last: 5 * time.Second}
	var got []time.Duration
	for range 7 {
		got = append(got, b.next())
	}
	require.Equal(t, []time.Duration{200e6, 400e6, 800e6, 1600e6, 3200e6, 5e9, 5e9}, got)
	b.reset()
	require.Equal(t, 200*time.Millisecond, b.next())
}

func TestMetricsExistFromTheStartAndCount(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	inv := gpus(3)
	inv.GPUs[0].Health.Healthy = false
	n := newNode(t, func(c *Config) { c.Metrics = reg })
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 11, seriesOf(t, reg))

	client := n.follow(inv)
	// The stream may be open before Register has returned.
	registrations := n.plugin.metrics.registrations.WithLabelValues(resultOK)
	require.Eventually(t, func() bool { return testutil.ToFloat64(registrations) == 1 }, 10*time.Second, time.Millisecond)
	_, err = allocate(t, client, "GPU-1")
	require.NoError(t, err)
	_, err = allocate(t, client, "GPU-9")
	require.Error(t, err)
	_, err = client.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{})
	require.Error(t, err)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP nri_gpu_deviceplugin_allocations_total Containers that were answered an allocation, and calls that were refused.
# TYPE nri_gpu_deviceplugin_allocations_total counter
nri_gpu_deviceplugin_allocations_total{resource="nvidia.com/gpu",result="error"} 1
nri_gpu_deviceplugin_allocations_total{resource="nvidia.com/gpu",result="ok"} 1
# HELP nri_gpu_deviceplugin_devices Devices listed to the kubelet.
# TYPE nri_gpu_deviceplugin_devices gauge
nri_gpu_deviceplugin_devices{health="healthy",resource="nvidia.com/gpu"} 2
nri_gpu_deviceplugin_devices{health="unhealthy",resource="nvidia.com/gpu"} 1
# HELP nri_gpu_deviceplugin_prestarts_total Container starts that were let through, and those held back because nri-gpu was not ready.
# TYPE nri_gpu_deviceplugin_prestarts_total counter
nri_gpu_deviceplugin_prestarts_total{resource="nvidia.com/gpu",result="error"} 1
nri_gpu_deviceplugin_prestarts_total{resource="nvidia.com/gpu",result="ok"} 0
# HELP nri_gpu_deviceplugin_registered Whether the kubelet follows the device list of the current registration.
# TYPE nri_gpu_deviceplugin_registered gauge
nri_gpu_deviceplugin_registered{resource="nvidia.com/gpu"} 1
# HELP nri_gpu_deviceplugin_registrations_total Registrations that the kubelet accepted, and attempts that failed.
# TYPE nri_gpu_deviceplugin_registrations_total counter
nri_gpu_deviceplugin_registrations_total{resource="nvidia.com/gpu",result="error"} 0
nri_gpu_deviceplugin_registrations_total{resource="nvidia.com/gpu",result="ok"} 1
`), "nri_gpu_deviceplugin_allocations_total", "nri_gpu_deviceplugin_devices", "nri_gpu_deviceplugin_prestarts_total",
		"nri_gpu_deviceplugin_registered", "nri_gpu_deviceplugin_registrations_total"))

	_, err = New(Config{Resource: testResource, KubeletDir: n.kubelet, Metrics: reg, Log: quiet()})
	require.ErrorContains(t, err, testResource)
}

func seriesOf(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	count, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	return count
}
