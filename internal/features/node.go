package features

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Node is the Sink that writes the labels on the Node object itself. It needs
// get and patch on nodes.
func Node(api API) Sink {
	o := &object{
		api: api, resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, kind: "Node", name: api.Node,
		at: []string{"metadata", "labels"},
	}
	return Sink{Name: "node", Verify: apiVerify, Write: o.writeNode}
}

func (o *object) writeNode(ctx context.Context, labels map[string]string) (bool, error) {
	node, err := o.read(ctx)
	if err != nil {
		return false, err
	}
	if node == nil {
		return false, fmt.Errorf("node labels: there is no node named %q; check the node's name, or wait for the kubelet to register it", o.name)
	}
	if changed, err := o.changes(node, labels); err != nil || !changed {
		return false, err
	}
	// With the UID the API server refuses to make a Node that was deleted
	// since we read it.
	fields := map[string]any{"metadata": map[string]any{"uid": string(node.GetUID()), "labels": anyMap(labels)}}
	if err := o.apply(ctx, fields); err != nil {
		return false, err
	}
	return true, nil
}

// NodeFeature is the Sink that writes a NodeFeature object, of which NFD's
// master makes node labels. It needs get, create and patch on nodefeatures, and
// may have get on nodes: the object then belongs to the Node and goes with it.
// Its name is the one that GPU feature discovery uses, so that it takes over
// what that left; the two must not run side by side.
func NodeFeature(api API, namespace string) Sink {
	node := &object{api: api, resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, kind: "Node", name: api.Node}
	o := &object{
		api:       api,
		resource:  schema.GroupVersionResource{Group: "nfd.k8s-sigs.io", Version: "v1alpha1", Resource: "nodefeatures"},
		kind:      "NodeFeature",
		namespace: namespace,
		name:      "nvidia-features-for-" + api.Node,
		at:        []string{"spec", "labels"},
	}
	return Sink{Name: "node-feature", Verify: apiVerify, Write: func(ctx context.Context, labels map[string]string) (bool, error) {
		return o.writeFeature(ctx, node, labels)
	}}
}

func (o *object) writeFeature(ctx context.Context, node *object, labels map[string]string) (bool, error) {
	if len(node.name) > maxLength {
		return false, fmt.Errorf("node labels: the node's name %q is longer than the %d characters that NFD can match; use the file", node.name, maxLength)
	}
	current, err := o.read(ctx)
	if err != nil {
		return false, err
	}
	if current != nil && current.GetLabels()[nfdNodeName] == node.name {
		if changed, err := o.changes(current, labels); err != nil || !changed {
			return false, err
		}
	}
	owner, err := node.owner(ctx)
	if err != nil {
		return false, err
	}
	metadata := map[string]any{"labels": map[string]any{nfdNodeName: node.name}}
	if owner != nil {
		metadata["ownerReferences"] = []any{owner}
	}
	err = o.apply(ctx, map[string]any{
		"metadata": metadata,
		"spec": map[string]any{
			"labels": anyMap(labels),
			// Older versions of the kind require all three.
			"features": map[string]any{"attributes": map[string]any{}, "flags": map[string]any{}, "instances": map[string]any{}},
		},
	})
	return err == nil, err
}

// nfdNodeName is the label by which NFD's master knows the node.
const nfdNodeName = "nfd.node.kubernetes.io/node-name"

// owner refers to the node, or is nil when we may not read it. It is read anew
// each time: an owner that is no more would take the object with it.
func (o *object) owner(ctx context.Context) (any, error) {
	node, err := o.read(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, err
	case node == nil:
		return nil, fmt.Errorf("node labels: there is no node named %q; check the node's name, or wait for the kubelet to register it", o.name)
	}
	return map[string]any{"apiVersion": "v1", "kind": "Node", "name": node.GetName(), "uid": string(node.GetUID())}, nil
}
