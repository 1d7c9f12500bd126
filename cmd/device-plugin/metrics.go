package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/health"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

// metrics are the daemon's own; those of the kubelet's side come from
// internal/deviceplugin.
type metrics struct {
	registry *prometheus.Registry
	driver   prometheus.Gauge
	looks    *prometheus.CounterVec
	duration prometheus.Histogram
	xids     *prometheus.CounterVec
	healthy  *prometheus.GaugeVec
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
	m.xids = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nri_gpu_deviceplugin_xids_total", Help: "Errors that the driver reported, by card, number, and what each asks for.",
	}, []string{"gpu", "xid", "action"})
	m.healthy = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "nri_gpu_deviceplugin_card_healthy", Help: "1 for a card or MIG device that may be used, else 0 with the reason as a label.",
	}, []string{"device", "reason"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nri_gpu_deviceplugin_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version.String()},
	})
	build.Set(1)
	m.looks.WithLabelValues("ok")
	m.looks.WithLabelValues("error")
	m.registry.MustRegister(m.driver, m.looks, m.duration, m.xids, m.healthy, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) looked(took time.Duration, ready, published bool) {
	m.duration.Observe(took.Seconds())
	m.driver.Set(0)
	if ready {
		m.driver.Set(1)
	}
	if !published {
		m.looks.WithLabelValues("error").Inc()
		return
	}
	m.looks.WithLabelValues("ok").Inc()
}

func (m *metrics) xid(x device.XID, a health.Action) {
	m.xids.WithLabelValues(x.GPU, strconv.FormatUint(x.Number, 10), string(a)).Inc()
}

// cards shows each device once, with the reason of now.
func (m *metrics) cards(inv device.Inventory) {
	m.healthy.Reset()
	for _, a := range inv.Devices() {
		value := 0.0
		if a.Health.Healthy {
			value = 1
		}
		m.healthy.WithLabelValues(a.UUID, a.Health.Reason).Set(value)
	}
}
