package inject_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

// BenchmarkDecide shows our own time for one container: of nobody's concern,
// and with one GPU, whose specs are joined and checked against the node.
func BenchmarkDecide(b *testing.B) {
	for name, names := range map[string][]string{"not-ours": nil, "one-gpu": {gpu0}} {
		b.Run(name, func(b *testing.B) {
			n := newNode(b)
			p, c := pod(), container(names...)
			var d *inject.Decision
			for b.Loop() {
				var err error
				d, err = n.Decide(p, c)
				require.NoError(b, err)
			}
			require.Equal(b, len(names) > 0, d != nil)
		})
	}
}
