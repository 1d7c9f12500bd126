//go:build tools

// Package tools pins the programs of the containerd 1.7 that the end-to-end
// tests of the annotation carrier run.
package tools

import (
	_ "github.com/containerd/containerd/cmd/containerd"
	_ "github.com/containerd/containerd/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/cmd/ctr"
)
