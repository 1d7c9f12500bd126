package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	registry  *prometheus.Registry
	connected prometheus.Gauge
	ready     prometheus.Gauge
	sessions  prometheus.Counter
	decisions *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	// unallocated counts containers with NVIDIA device nodes from elsewhere.
	unallocated prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nri_gpu_connected", Help: "1 while registered and synchronised with the runtime."}),
		ready:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "nri_gpu_ready", Help: "1 while connected and with a valid spec."}),
		sessions:  prometheus.NewCounter(prometheus.CounterOpts{Name: "nri_gpu_connections_total", Help: "Connections that were synchronised."}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nri_gpu_decisions_total", Help: "Containers by outcome: injected, refused, environment (NVIDIA_VISIBLE_DEVICES taken back), not-ours.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nri_gpu_decision_duration_seconds", Help: "Our own time in CreateContainer.", Buckets: prometheus.ExponentialBuckets(10e-6, 4, 10),
		}, []string{"outcome"}),
	}
	m.unallocated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "nri_gpu_unallocated_total", Help: "Containers that had NVIDIA device nodes without an allocation, such as privileged ones.",
	})
	m.registry.MustRegister(m.connected, m.ready, m.sessions, m.decisions, m.duration, m.unallocated)
	for _, o := range []string{"injected", "refused", "environment", "not-ours"} {
		m.decisions.WithLabelValues(o)
	}
	return m
}

func (m *metrics) decided(outcome string, took time.Duration) {
	m.decisions.WithLabelValues(outcome).Inc()
	m.duration.WithLabelValues(outcome).Observe(took.Seconds())
}

func gauge(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}
