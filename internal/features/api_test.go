package features_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

func TestTheNodeIsWrittenOnChangeOnly(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	inv := node("Tesla T4", "Tesla T4")
	inv.GPUs[1].MIGEnabled = true
	inv.GPUs[1].MIGDevices = []device.MIGDevice{{UUID: "MIG-0", Profile: "1g.5gb", Health: healthy()}}
	sharing := features.Sharing{MIGStrategy: resources.MIGMixed}
	options := features.Options{Sinks: []features.Sink{features.Node(s.api())}, Sharing: func() features.Sharing { return sharing }, Log: quiet()}
	p := features.New(options)
	for range 100 {
		require.NoError(t, p.Publish(t.Context(), inv))
	}
	s.requireLabels(features.Labels(&inv, &sharing, ""), nodePath, onNode...)
	reads, writes := s.counts(nodePath)
	require.Equal(t, []int{1, 1}, []int{reads, writes})

	require.NoError(t, features.New(options).Publish(t.Context(), inv), "a restart")
	_, writes = s.counts(nodePath)
	require.Equal(t, 1, writes)

	inv.GPUs[1].MIGEnabled, inv.GPUs[1].MIGDevices = false, nil
	p = features.New(options)
	require.NoError(t, p.Publish(t.Context(), inv))
	s.requireLabels(features.Labels(&inv, &sharing, ""), nodePath, onNode...)
	_, writes = s.counts(nodePath)
	require.Equal(t, 2, writes, "what is no longer so is gone, also after a restart")
	require.Equal(t, "linux", s.object(nodePath).GetLabels()["kubernetes.io/os"], "others' labels stay")
}

func TestALabelThatIsNoMoreIsRemovedEvenIfNothingElseChanged(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	for path, sink := range map[string]func() features.Sink{
		nodePath:    func() features.Sink { return features.Node(s.api()) },
		featurePath: func() features.Sink { return features.NodeFeature(s.api(), "gpu") },
	} {
		at := map[string][]string{nodePath: onNode, featurePath: onFeature}[path]
		for _, labels := range []map[string]string{{"nvidia.com/a": "1", "nvidia.com/b": "2"}, {"nvidia.com/a": "1"}} {
			changed, err := sink().Write(t.Context(), labels)
			require.NoError(t, err)
			require.True(t, changed)
			s.requireLabels(labels, path, at...)
		}
	}
}

func TestALabelOfAnotherIsTakenOverAndTold(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.labelAs("nfd-master", nodePath, "nvidia.com/gpu.count", "7", onNode...)
	s.labelAs("nfd-master", nodePath, "nvidia.com/gpu.deploy.driver", "true", onNode...)
	api := s.api()
	var told []string
	api.Overwrote = func(key, was, now, manager string) { told = append(told, key, was, now, manager) }
	inv := node("Tesla T4")
	require.NoError(t, publisher(features.Node(api)).Publish(t.Context(), inv))
	require.Equal(t, []string{"nvidia.com/gpu.count", "7", "1", "nfd-master"}, told)
	labels := want(inv)
	labels["nvidia.com/gpu.deploy.driver"] = "true"
	s.requireLabels(labels, nodePath, onNode...)
}

func TestANodeThatIsNotThereIsNotMade(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.put(nodePath, nil)
	err := publisher(features.Node(s.api())).Publish(t.Context(), node("Tesla T4"))
	require.ErrorContains(t, err, `no node named "node-1"`)
	_, writes := s.counts(nodePath)
	require.Zero(t, writes)

	// It goes between the look and the write.
	s = newAPIServer(t)
	s.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			s.put(nodePath, nil)
		}
		return false
	})
	err = publisher(features.Node(s.api())).Publish(t.Context(), node("Tesla T4"))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Nil(t, s.object(nodePath))
}

func TestTheNodeFeatureIsMadeAndWrittenOnChangeOnly(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	inv := node("Tesla T4", "Tesla T4")
	p := publisher(features.NodeFeature(s.api(), "gpu"))
	for range 100 {
		require.NoError(t, p.Publish(t.Context(), inv))
	}
	u := s.object(featurePath)
	require.Equal(t, map[string]string{"nfd.node.kubernetes.io/node-name": "node-1"}, u.GetLabels())
	require.Equal(t, "uid-1", string(u.GetOwnerReferences()[0].UID), "it goes with the node")
	s.requireLabels(want(inv), featurePath, onFeature...)
	for _, kind := range []string{"attributes", "flags", "instances"} {
		_, found, err := unstructured.NestedMap(u.Object, "spec", "features", kind)
		require.NoError(t, err)
		require.True(t, found, kind)
	}
	reads, writes := s.counts(featurePath)
	require.Equal(t, []int{1, 1}, []int{reads, writes})

	require.NoError(t, publisher(features.NodeFeature(s.api(), "gpu")).Publish(t.Context(), inv), "a restart")
	_, writes = s.counts(featurePath)
	require.Equal(t, 1, writes)

	inv.GPUs = inv.GPUs[:1]
	require.NoError(t, p.Publish(t.Context(), inv))
	s.requireLabels(want(inv), featurePath, onFeature...)
	_, writes = s.counts(featurePath)
	require.Equal(t, 2, writes)
}

func TestTheNodeFeatureNeedsNoRightOnNodes(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != nodePath {
			return false
		}
		respond(w, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("no")))
		return true
	})
	require.NoError(t, publisher(features.NodeFeature(s.api(), "gpu")).Publish(t.Context(), node("Tesla T4")))
	require.Empty(t, s.object(featurePath).GetOwnerReferences())
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Resource: "things"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"forbidden":    {apierrors.NewForbidden(resource, "x", errors.New("no")), "give the service account the verbs"},
		"unauthorized": {apierrors.NewUnauthorized("who"), "credentials"},
		"not found":    {apierrors.NewNotFound(resource, "x"), "install Node Feature Discovery"},
		"invalid":      {apierrors.NewBadRequest("what"), "report this"},
		"conflict":     {apierrors.NewConflict(resource, "x", errors.New("uid")), "tried again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch {
					respond(w, c.err)
				}
				return r.Method == http.MethodPatch
			})
			err := publisher(features.NodeFeature(s.api(), "gpu")).Publish(t.Context(), node("Tesla T4"))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, `NodeFeature "nvidia-features-for-node-1" in namespace "gpu"`)
		})
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	_, err := features.Connect(path)
	require.ErrorContains(t, err, path)
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u}]\n"), 0o600))
	client, err := features.Connect(path)
	require.NoError(t, err)
	api := features.API{Client: client, Node: "n"}
	require.ErrorContains(t, publisher(features.Node(api)).Publish(t.Context(), node("x")), "connection refused")
}
