//go:build e2e

package guest

import (
	"testing"
)

// TestBoot2 finds the node as it was left, without anybody having touched it.
func TestBoot2(t *testing.T) {
	scenarios(t, []scenario{
		{"TheDriverIsServedAgain", func(t *testing.T) { served(t, oldDriver) }},
	})
}
