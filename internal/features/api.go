package features

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// FieldManager is the name under which the API server records what is ours.
const FieldManager = "nri-gpu-device-plugin"

// apiVerify is the time after which an object is read again, in case that
// somebody changed or removed it.
const apiVerify = 10 * time.Minute

// DefaultCallTimeout bounds one call of the API server.
const DefaultCallTimeout = 10 * time.Second

// API is what a Sink needs to write to the API server.
type API struct {
	Client dynamic.Interface
	// Node is the name of this node's Node object.
	Node string
	// CallTimeout bounds each call; 0: DefaultCallTimeout.
	CallTimeout time.Duration
	// Overwrote is told when a label was another's and had another value; nil:
	// nobody is told.
	Overwrote func(key, was, now, manager string)
}

// Connect returns a client for a kubeconfig, or for the service account of this
// pod when the path is empty. It does not call the API server.
func Connect(kubeconfig string) (dynamic.Interface, error) {
	config, err := configFor(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = FieldManager
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for the API server: %w", err)
	}
	return client, nil
}

func configFor(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no service account of a pod (%w); outside of a pod, set a kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}

// object is one object of which we own labels.
type object struct {
	api      API
	resource schema.GroupVersionResource
	kind     string
	// namespace is empty for what has none.
	namespace, name string
	// at is where the labels lie.
	at []string
}

func (o *object) String() string {
	if o.namespace == "" {
		return fmt.Sprintf("%s %q", o.kind, o.name)
	}
	return fmt.Sprintf("%s %q in namespace %q", o.kind, o.name, o.namespace)
}

func (o *object) client() dynamic.ResourceInterface {
	r := o.api.Client.Resource(o.resource)
	if o.namespace == "" {
		return r
	}
	return r.Namespace(o.namespace)
}

func (o *object) call(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := o.api.CallTimeout
	if timeout == 0 {
		timeout = DefaultCallTimeout
	}
	return context.WithTimeout(ctx, timeout)
}

// read returns the object, or nil when there is none.
func (o *object) read(ctx context.Context) (*unstructured.Unstructured, error) {
	ctx, cancel := o.call(ctx)
	defer cancel()
	u, err := o.client().Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, o.explain("read", err)
	}
	return u, nil
}

// apply makes the API server hold these fields of the object, and drop what we
// applied earlier and do not any more. It takes fields that are another's.
func (o *object) apply(ctx context.Context, fields map[string]any) error {
	ctx, cancel := o.call(ctx)
	defer cancel()
	want := &unstructured.Unstructured{Object: fields}
	want.SetAPIVersion(o.resource.GroupVersion().String())
	want.SetKind(o.kind)
	want.SetName(o.name)
	want.SetNamespace(o.namespace)
	if _, err := o.client().Apply(ctx, o.name, want, metav1.ApplyOptions{FieldManager: FieldManager, Force: true}); err != nil {
		return o.explain("write", err)
	}
	return nil
}

// explain says what is wrong with which object, and what to do.
func (o *object) explain(verb string, err error) error {
	next := "it is tried again"
	switch {
	case apierrors.IsForbidden(err):
		next = fmt.Sprintf("give the service account the verbs get, create and patch on %s", o.resource.GroupResource())
	case apierrors.IsUnauthorized(err):
		next = "the API server does not know our credentials; look at the service account or the kubeconfig"
	case apierrors.IsNotFound(err) && o.namespace != "":
		next = fmt.Sprintf("install Node Feature Discovery, whose kind this is, and make the namespace %q", o.namespace)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		next = "the API server does not accept it; report this with the message"
	case apierrors.IsConflict(err):
		next = "somebody replaced it meanwhile; it is tried again"
	}
	return fmt.Errorf("node labels: %s %s: %w; %s", verb, o, err, next)
}

// changes tells whether the labels of an object are to be written: one that is
// wanted is missing or another, or one that was ours is no longer wanted.
func (o *object) changes(u *unstructured.Unstructured, wanted map[string]string) (bool, error) {
	have, _, err := unstructured.NestedStringMap(u.Object, o.at...)
	if err != nil {
		return false, fmt.Errorf("node labels: read %s: %w", o, err)
	}
	owner := owners(u, o.at)
	changed := false
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		was, ok := have[key]
		if ok && was == wanted[key] {
			continue
		}
		changed = true
		if ok && owner[key] != FieldManager && o.api.Overwrote != nil {
			o.api.Overwrote(key, was, wanted[key], owner[key])
		}
	}
	for key, manager := range owner {
		if _, ok := wanted[key]; manager == FieldManager && !ok {
			changed = true
		}
	}
	return changed, nil
}

// owners maps each label to the manager that wrote it, ourselves first where
// several did.
func owners(u *unstructured.Unstructured, at []string) map[string]string {
	out := map[string]string{}
	for _, entry := range u.GetManagedFields() {
		if entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // of a form that is newer than we are; it owns what it owns
		}
		for _, name := range at {
			fields, _ = fields["f:"+name].(map[string]any)
		}
		for field := range fields {
			key, ok := strings.CutPrefix(field, "f:")
			if ok && out[key] != FieldManager {
				out[key] = entry.Manager
			}
		}
	}
	return out
}

// anyMap is a label map as an unstructured object holds it.
func anyMap(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
