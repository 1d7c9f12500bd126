package deviceplugin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The results that label counters.
const (
	resultOK    = "ok"
	resultError = "error"
)

// metrics are those of one resource. Every series exists from the start, so
// that an absent one is a fault of the scrape and nothing else.
type metrics struct {
	registered    prometheus.Gauge
	streams       prometheus.Gauge
	registrations *prometheus.CounterVec
	devices       *prometheus.GaugeVec
	allocations   *prometheus.CounterVec
	prestarts     *prometheus.CounterVec
	duration      prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, resource string) (*metrics, error) {
	const prefix = "nri_gpu_deviceplugin_"
	labels := prometheus.Labels{"resource": resource}
	counter := func(name, help string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help, ConstLabels: labels}, []string{"result"})
		vec.WithLabelValues(resultOK)
		vec.WithLabelValues(resultError)
		return vec
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Name: prefix + name, Help: help, ConstLabels: labels}
	}
	m := &metrics{
		registered:    prometheus.NewGauge(gauge("registered", "Whether the kubelet follows the device list of the current registration.")),
		streams:       prometheus.NewGauge(gauge("streams", "Open ListAndWatch streams of the current registration.")),
		devices:       prometheus.NewGaugeVec(gauge("devices", "Devices listed to the kubelet."), []string{"health"}),
		registrations: counter("registrations_total", "Registrations that the kubelet accepted, and attempts that failed."),
		allocations:   counter("allocations_total", "Containers that were answered an allocation, and calls that were refused."),
		prestarts:     counter("prestarts_total", "Container starts that were let through, and those held back because nri-gpu was not ready."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "allocate_duration_seconds", Help: "Time to answer Allocate.", ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 8), // 10 µs to 0.16 s
		}),
	}
	m.count(0, 0)
	for _, c := range []prometheus.Collector{m.registered, m.streams, m.devices, m.registrations, m.allocations, m.prestarts, m.duration} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) count(healthy, unhealthy int) {
	m.devices.WithLabelValues("healthy").Set(float64(healthy))
	m.devices.WithLabelValues("unhealthy").Set(float64(unhealthy))
}

func (m *metrics) allocated(start time.Time, err error) {
	m.duration.Observe(time.Since(start).Seconds())
	m.allocations.WithLabelValues(result(err)).Inc()
}

func result(err error) string {
	if err != nil {
		return resultError
	}
	return resultOK
}
