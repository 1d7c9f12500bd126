package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/nri-gpu/nri-gpu/internal/version"
)

// metrics are the daemon's own; those of the kubelet's side come from
// internal/deviceplugin.
type metrics struct {
	registry *prometheus.Registry
	driver   prometheus.Gauge
	looks    *prometheus.CounterVec
	duration prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		driver:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "nri_gpu_deviceplugin_driver_ready", Help: "1 while the driver answers and lists a GPU."}),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nri_gpu_deviceplugin_discoveries_total", Help: "Looks at the node, by whether what was found could be published.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nri_gpu_deviceplugin_discovery_duration_seconds", Help: "Time to look at the node and publish what it has.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 9), // 5 ms to 7.6 s
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nri_gpu_deviceplugin_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version.String()},
	})
	build.Set(1)
	m.looks.WithLabelValues("ok")
	m.looks.WithLabelValues("error")
	m.registry.MustRegister(m.driver, m.looks, m.duration, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) looked(took time.Duration, ready bool, err error) {
	m.duration.Observe(took.Seconds())
	m.driver.Set(0)
	if ready {
		m.driver.Set(1)
	}
	if err != nil {
		m.looks.WithLabelValues("error").Inc()
		return
	}
	m.looks.WithLabelValues("ok").Inc()
}
