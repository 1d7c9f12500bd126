package nodeapi

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Reasons of events.
const (
	ReasonUnhealthy = "GPUUnhealthy"
	ReasonHealthy   = "GPUHealthy"
)

const (
	// maxEvents is how many may wait for an API server that does not answer.
	maxEvents = 64
	// callTimeout bounds one call, and attempts the number of them.
	callTimeout = 10 * time.Second
	attempts    = 5
	// maxMessage is what the API server takes, in bytes.
	maxMessage = 1024
	// component is who says it.
	component = "nri-gpu-device-plugin"
	// eventNamespace is where events of objects without a namespace lie.
	eventNamespace = "default"
)

// Events writes events about a node.
type Events struct {
	client dynamic.Interface
	node   string
	log    logrus.FieldLogger
	queue  chan event
	// pause is the first wait between two attempts.
	pause time.Duration
}

type event struct {
	time            time.Time
	reason, message string
	warning         bool
}

// NewEvents returns a writer for the events of a node.
func NewEvents(client dynamic.Interface, node string, log logrus.FieldLogger) *Events {
	return &Events{client: client, node: node, log: log, queue: make(chan event, maxEvents), pause: time.Second}
}

// Health tells that a device may not be used, or may be again. It never waits;
// an event that finds no room is told to the log alone.
func (e *Events) Health(device string, healthy bool, why string) {
	ev := event{time: time.Now(), reason: ReasonHealthy, message: fmt.Sprintf("%s may be used again", device)}
	if !healthy {
		ev.reason, ev.message, ev.warning = ReasonUnhealthy, fmt.Sprintf("%s may not be used: %s", device, why), true
	}
	select {
	case e.queue <- ev:
	default:
		e.log.Warnf("no event was written, the API server does not keep up: %s", ev.message)
	}
}

// Run writes events until ctx ends.
func (e *Events) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-e.queue:
			e.write(ctx, ev)
		}
	}
}

func (e *Events) write(ctx context.Context, ev event) {
	pause := e.pause
	for n := 1; ; n++ {
		err := e.create(ctx, ev)
		if err == nil || ctx.Err() != nil {
			return
		}
		if n == attempts {
			e.log.WithError(err).Warnf("no event was written on node %q: %s; does this program's account have the right to create events", e.node, ev.message)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (e *Events) create(ctx context.Context, ev event) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kind, at := "Normal", ev.time.UTC().Format(time.RFC3339)
	if ev.warning {
		kind = "Warning"
	}
	object := map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]any{"generateName": e.node + ".gpu.", "namespace": eventNamespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Node", "name": e.node, "uid": e.node},
		"reason":         ev.reason, "message": ev.message[:min(len(ev.message), maxMessage)], "type": kind, "count": int64(1),
		"firstTimestamp": at, "lastTimestamp": at, "source": map[string]any{"component": component, "host": e.node},
		"reportingComponent": component, "reportingInstance": e.node,
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	_, err := e.client.Resource(resource).Namespace(eventNamespace).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	return err
}
