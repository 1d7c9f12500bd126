package flock_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/flock"
)

func TestASecondInstanceIsRefusedAndTheFirstNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "x.lock")
	release, err := flock.Acquire(path)
	require.NoError(t, err)
	_, err = flock.Acquire(path)
	var held *flock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, strconv.Itoa(os.Getpid()), held.PID)
	require.NoError(t, release())
	release, err = flock.Acquire(path)
	require.NoError(t, err)
	require.NoError(t, release())
}
