package features

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Metrics count what was published. A nil one counts nothing.
type Metrics struct {
	writes    *prometheus.CounterVec
	published *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nri_gpu_deviceplugin_label_writes_total", Help: "Looks at a place that holds the node's labels, by what they came to.",
		}, []string{"place", "result"}),
		published: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nri_gpu_deviceplugin_labels_published", Help: "Whether a place holds the newest labels of the node.",
		}, []string{"place"}),
	}
	for _, c := range []prometheus.Collector{m.writes, m.published} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// The results that label writes.
const (
	resultWritten   = "written"
	resultUnchanged = "unchanged"
	resultError     = "error"
)

// declare makes every series of a place exist from the start.
func (m *Metrics) declare(place string) {
	if m == nil {
		return
	}
	m.published.WithLabelValues(place)
	for _, r := range []string{resultWritten, resultUnchanged, resultError} {
		m.writes.WithLabelValues(place, r)
	}
}

func (m *Metrics) wrote(place string, changed bool, err error) {
	if m == nil {
		return
	}
	result, published := resultUnchanged, 1.0
	switch {
	case err != nil:
		result, published = resultError, 0
	case changed:
		result = resultWritten
	}
	m.writes.WithLabelValues(place, result).Inc()
	m.published.WithLabelValues(place).Set(published)
}

// MachineName reads what the firmware calls the machine, from a file such as
// roots' sys/class/dmi/id/product_name when path is empty; "" when it says
// nothing.
func MachineName(r roots.Roots, path string) string {
	if path == "" {
		path = r.Sys("class", "dmi", "id", "product_name")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func timestamp(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
