// Package judge holds our device plugin to the kubelet's own device manager, in
// process: the code that decides on a node, of several versions of Kubernetes,
// without a node. The scenarios are here; k137 and k134 are modules of their
// own, each with one version and an adapter for it (make test-judge).
//
// The manager's directory is a constant below /var/lib, so the tests run in a
// mount namespace with a /var/lib of their own, as root.
package judge
