//go:build tools

// Package tools pins crictl for the end-to-end tests.
package tools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
