//go:build e2e

// Package e2e runs pods with GPUs on the whole real stack: etcd, the control
// plane, a kubelet, containerd, runc, and our daemons on a node that plays to
// have eight GPUs. One cluster serves all tests; a test that stops a part of it
// starts it again. The files are one scenario each.
package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// cluster is what every test uses.
var cluster *stack.Stack

func TestMain(m *testing.M) {
	world, err := harness.Enter()
	if err != nil {
		panic(err)
	}
	cluster, err = stack.Start(context.Background(), world, stack.Options{Top: "../..", Profile: "a100x8"})
	if err != nil {
		panic(errors.Join(err, cluster.Stop()))
	}
	m.Run()
	if err := cluster.Stop(); err != nil {
		panic(err)
	}
}
