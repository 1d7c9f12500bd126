package nodeapi

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	nodes  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	events = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

func newClient(objects ...runtime.Object) *fake.FakeDynamicClient {
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{nodes: "NodeList", events: "EventList"}, objects...)
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// generated gives objects the names that an API server would.
func generated(client *fake.FakeDynamicClient) {
	var n atomic.Int64
	client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured) //nolint:forcetypeassert // a dynamic client creates nothing else
		o.SetName(o.GetGenerateName() + strings.Repeat("x", int(n.Add(1))))
		return false, nil, nil
	})
}

func TestATransitionIsAnEventOfTheNode(t *testing.T) {
	t.Parallel()
	client := newClient()
	generated(client)
	fails := 2
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		if fails--; fails >= 0 {
			return true, nil, errors.New("the API server is away")
		}
		return false, nil, nil
	})
	e := NewEvents(client, "node-1", quiet())
	e.pause = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx) }()
	e.Health("GPU-0", false, "XID 79 "+strings.Repeat("x", 2000))
	e.Health("GPU-0", true, "")
	var list *unstructured.UnstructuredList
	require.Eventually(t, func() bool {
		var err error
		list, err = client.Resource(events).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	}, 10*time.Second, time.Millisecond)
	cancel()
	<-done
	byReason := map[string]map[string]any{}
	for _, o := range list.Items {
		reason, _, err := unstructured.NestedString(o.Object, "reason")
		require.NoError(t, err)
		byReason[reason] = o.Object
	}
	require.Equal(t, "Warning", byReason[ReasonUnhealthy]["type"])
	message, ok := byReason[ReasonUnhealthy]["message"].(string)
	require.True(t, ok)
	require.True(t, strings.HasPrefix(message, "GPU-0 may not be used: XID 79"))
	require.Len(t, message, 1024)
	require.Equal(t, "Normal", byReason[ReasonHealthy]["type"])
	require.Equal(t, map[string]any{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}, byReason[ReasonHealthy]["involvedObject"])
}

func TestEventsForAnAPIServerThatIsAwayDoNotPileUp(t *testing.T) {
	t.Parallel()
	e := NewEvents(newClient(), "node-1", quiet())
	for range 10 * maxEvents {
		e.Health("GPU-0", false, "x") // nobody reads; it returns all the same
	}
	require.Len(t, e.queue, maxEvents)
}

func node(value string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-1"}}}
	if value != "" {
		o.SetLabels(map[string]string{"config": value})
	}
	return o
}

func TestALabelIsToldNowAndWhenItChanges(t *testing.T) {
	t.Parallel()
	client := newClient(node(""))
	ctx, cancel := context.WithCancel(t.Context())
	values := make(chan string, 10)
	done := make(chan error, 1)
	go func() { done <- FollowLabel(ctx, client, "node-1", "config", func(v string) { values <- v }) }()
	next := func() string {
		select {
		case v := <-values:
			return v
		case <-time.After(10 * time.Second):
			require.FailNow(t, "nothing was told")
			return ""
		}
	}
	require.Empty(t, next())
	for _, v := range []string{"a", "b", ""} {
		// The fake tells a watch only of what comes after it was opened.
		require.Eventually(t, func() bool {
			_, err := client.Resource(nodes).Update(t.Context(), node(v), metav1.UpdateOptions{})
			require.NoError(t, err)
			select {
			case got := <-values:
				return got == v
			case <-time.After(50 * time.Millisecond):
				return false
			}
		}, 10*time.Second, time.Millisecond)
	}
	cancel()
	require.NoError(t, <-done)
}
