package recent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/recent"
)

func TestTheLastOnesAreKeptInOrder(t *testing.T) {
	t.Parallel()
	var l recent.List[int]
	require.Equal(t, []int{}, l.All())
	for i := range 100 {
		l.Add(i)
	}
	all := l.All()
	require.Len(t, all, 32)
	require.Equal(t, 68, all[0])
	require.Equal(t, 99, all[31])
}
