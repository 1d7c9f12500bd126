package nodeapi

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// FollowLabel tells the value of a label of a node, "" when it has none, now and
// whenever it changes, until ctx ends. An API server that is away is waited for.
func FollowLabel(ctx context.Context, client dynamic.Interface, node, label string, tell func(value string)) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", node).String()
	})
	informer := factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Informer()
	told, last := false, ""
	see := func(object any) {
		o, ok := object.(metav1.Object)
		if !ok || o.GetName() != node {
			return
		}
		// One goroutine calls the handlers, one after the other.
		if value := o.GetLabels()[label]; !told || value != last {
			told, last = true, value
			tell(value)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
