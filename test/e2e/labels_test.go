//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/test/harness"
)

var (
	nodeFeatures = schema.GroupVersionResource{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Resource: "nodefeatures"}
	crds         = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// labelInventory is a node whose second card is partitioned or not.
func labelInventory(mig bool) device.Inventory {
	healthy := device.Health{Healthy: true}
	inv := device.Inventory{Driver: device.Driver{State: device.DriverReady, Version: "535.309.01", CUDAVersion: "12.2"}, GPUs: []device.GPU{
		{UUID: "GPU-0", Model: "NVIDIA TITAN X (Pascal)", MemoryBytes: 12 << 30, ComputeCapability: "6.1", Health: healthy},
		{UUID: "GPU-1", Index: 1, Model: "NVIDIA RTX PRO 6000 Blackwell Server Edition", ComputeCapability: "12.0", MIGEnabled: mig, Health: healthy},
	}}
	if mig {
		inv.GPUs[1].MIGDevices = []device.MIGDevice{{UUID: "MIG-0", Profile: "1g.24gb+me", MemoryBytes: 24 << 30, Health: healthy}}
	}
	return inv
}

// dynamicClient is an administrator's, or a user's that the administrator is for
// once.
func dynamicClient(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cluster.Plane.Kubeconfig)
	require.NoError(t, err)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// removeAfter deletes something at a test's end, when its context is over.
func removeAfter(t *testing.T, name string, del func(context.Context, string, metav1.DeleteOptions) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, del(ctx, name, metav1.DeleteOptions{}))
	})
}

// labeller is a client with the rights that docs/node-labels.md asks for, and no
// more.
func labeller(t *testing.T) dynamic.Interface {
	t.Helper()
	const user = "gpu-labels"
	roles := cluster.Client.RbacV1()
	_, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{nodeFeatures.Group}, Resources: []string{nodeFeatures.Resource}, Verbs: []string{"get", "create", "patch"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	removeAfter(t, user, roles.ClusterRoles().Delete)
	_, err = roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	removeAfter(t, user, roles.ClusterRoleBindings().Delete)
	return dynamicClient(t, user)
}

// defineNodeFeature makes NFD's kind, and waits until it is served.
func defineNodeFeature(t *testing.T, admin dynamic.Interface) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "nodefeatures-crd.yaml"))
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(data, &crd.Object))
	_, err = admin.Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{})
	require.NoError(t, err)
	removeAfter(t, crd.GetName(), func(ctx context.Context, name string, opts metav1.DeleteOptions) error {
		return admin.Resource(crds).Delete(ctx, name, opts)
	})
	require.Eventually(t, func() bool {
		_, err := admin.Resource(nodeFeatures).Namespace("default").List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
}

// nvidia are the labels below nvidia.com/ at a place of an object.
func nvidia(t *testing.T, u *unstructured.Unstructured, at ...string) map[string]string {
	t.Helper()
	labels, _, err := unstructured.NestedStringMap(u.Object, at...)
	require.NoError(t, err)
	maps.DeleteFunc(labels, func(key, _ string) bool { return !strings.HasPrefix(key, features.Prefix) })
	return labels
}

func TestNodeLabelsThroughTheAPI(t *testing.T) {
	admin := dynamicClient(t, "")
	defineNodeFeature(t, admin)
	api := features.API{Client: labeller(t), Node: harness.NodeName}
	sharing := features.Sharing{MIGStrategy: resources.MIGMixed}
	publish := func(inv device.Inventory) {
		t.Helper()
		p := features.New(features.Options{
			Sinks: []features.Sink{features.Node(api), features.NodeFeature(api, "default")}, Log: logrus.New(),
			Sharing: func() features.Sharing { return sharing },
		})
		require.NoError(t, p.Publish(t.Context(), inv))
	}
	objects := func() (node, feature *unstructured.Unstructured) {
		t.Helper()
		node, err := admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Get(t.Context(), harness.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		feature, err = admin.Resource(nodeFeatures).Namespace("default").Get(t.Context(), "nvidia-features-for-"+harness.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		return node, feature
	}
	for _, mig := range []bool{true, false} {
		inv := labelInventory(mig)
		publish(inv)
		want := features.Labels(&inv, &sharing, "")
		node, feature := objects()
		require.Equal(t, want, nvidia(t, node, "metadata", "labels"))
		require.Equal(t, want, nvidia(t, feature, "spec", "labels"))
		require.Equal(t, node.GetUID(), feature.GetOwnerReferences()[0].UID)
		require.Equal(t, "linux", node.GetLabels()["kubernetes.io/os"])

		generation := feature.GetResourceVersion()
		publish(inv)
		_, feature = objects()
		require.Equal(t, generation, feature.GetResourceVersion(), "a restart writes nothing")
	}
}

func TestANodeIsNotMadeByItsLabels(t *testing.T) {
	api := features.API{Client: dynamicClient(t, ""), Node: "no-such-node"}
	p := features.New(features.Options{Sinks: []features.Sink{features.Node(api), features.NodeFeature(api, "default")}, Log: logrus.New()})
	err := p.Publish(t.Context(), labelInventory(false))
	require.ErrorContains(t, err, fmt.Sprintf("no node named %q", "no-such-node"))
	_, err = cluster.Client.CoreV1().Nodes().Get(t.Context(), "no-such-node", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
