package features_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	nodePath    = "/api/v1/nodes/node-1"
	featurePath = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpu/nodefeatures/nvidia-features-for-node-1"
)

// apiServer answers get and server-side apply for single objects, with the
// rules of Kubernetes' own field manager, and counts.
type apiServer struct {
	t *testing.T
	*httptest.Server

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	reads   map[string]int
	writes  map[string]int
	// answer, when set, may take a request over.
	answer func(w http.ResponseWriter, r *http.Request) bool
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{t: t, objects: map[string]*unstructured.Unstructured{}, reads: map[string]int{}, writes: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	s.put(nodePath, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "node-1", "uid": "uid-1", "labels": map[string]any{"kubernetes.io/os": "linux"}},
	}})
	return s
}

func (s *apiServer) client() dynamic.Interface {
	s.t.Helper()
	c, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	require.NoError(s.t, err)
	return c
}

func (s *apiServer) put(path string, u *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = u
}

func (s *apiServer) object(path string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.objects[path]; u != nil {
		return u.DeepCopy()
	}
	return nil
}

// counts are the reads and writes of a path.
func (s *apiServer) counts(path string) (reads, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[path], s.writes[path]
}

func (s *apiServer) intercept(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if r.Method == http.MethodPatch {
		s.writes[r.URL.Path]++
	} else {
		s.reads[r.URL.Path]++
	}
	answer := s.answer
	s.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	u, err := s.serve(r)
	if err != nil {
		respond(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(u)
}

// respond answers with an error as the API server does.
func respond(w http.ResponseWriter, err error) {
	status := apierrors.NewInternalError(err).ErrStatus
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func (s *apiServer) serve(r *http.Request) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.objects[r.URL.Path]
	if r.Method == http.MethodGet {
		if live == nil {
			parts := strings.Split(r.URL.Path, "/")
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: parts[len(parts)-2]}, parts[len(parts)-1])
		}
		return live.DeepCopy(), nil
	}
	if r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/apply-patch+yaml" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s with %q is not expected", r.Method, r.Header.Get("Content-Type")))
	}
	u, err := apply(live, r)
	if err != nil {
		return nil, err
	}
	s.objects[r.URL.Path] = u
	return u.DeepCopy(), nil
}

func apply(live *unstructured.Unstructured, r *http.Request) (*unstructured.Unstructured, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	wanted := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &wanted.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if live == nil {
		if wanted.GetUID() != "" { // as k8s.io/apiserver does
			return nil, apierrors.NewConflict(schema.GroupResource{}, wanted.GetName(), fmt.Errorf("uid mismatch: no existing object was found"))
		}
		live = &unstructured.Unstructured{Object: map[string]any{"apiVersion": wanted.GetAPIVersion(), "kind": wanted.GetKind()}}
	}
	gvk := wanted.GroupVersionKind()
	manager, err := managedfields.NewDefaultFieldManager(managedfields.NewDeducedTypeConverter(), plain{}, plain{}, plain{}, gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	out, err := manager.Apply(live, wanted, q.Get("fieldManager"), q.Get("force") == "true")
	if err != nil {
		return nil, err
	}
	u, _ := out.(*unstructured.Unstructured)
	return u, nil
}

// plain knows one version of each kind, and defaults nothing.
type plain struct{}

func (plain) Convert(_, _, _ any) error { return nil }
func (plain) Default(runtime.Object)    {}
func (plain) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (plain) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (plain) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// labelAs sets a label as another manager would.
func (s *apiServer) labelAs(manager, path, key, value string, at ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.objects[path]
	require.NoError(s.t, unstructured.SetNestedField(u.Object, value, append(slices.Clone(at), key)...))
	field := fmt.Sprintf(`{"f:%s":{}}`, key)
	for _, name := range slices.Backward(at) {
		field = fmt.Sprintf(`{"f:%s":%s}`, name, field)
	}
	u.SetManagedFields(append(u.GetManagedFields(), metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: u.GetAPIVersion(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(field),
	}))
}

// requireLabels compares the labels of an object below nvidia.com/.
func (s *apiServer) requireLabels(want map[string]string, path string, at ...string) {
	s.t.Helper()
	u := s.object(path)
	require.NotNil(s.t, u, path)
	got, _, err := unstructured.NestedStringMap(u.Object, at...)
	require.NoError(s.t, err)
	maps.DeleteFunc(got, func(key, _ string) bool { return !strings.HasPrefix(key, "nvidia.com/") })
	require.Equal(s.t, want, got)
}
