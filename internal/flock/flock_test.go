package flock_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/flock"
)

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func TestASecondInstanceIsRefusedAndTheFirstNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "x.lock")
	lock, err := flock.Acquire(path)
	require.NoError(t, err)
	for _, wait := range []time.Duration{0, 200 * time.Millisecond} {
		_, err = flock.Wait(t.Context(), path, wait, quiet())
		var held *flock.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, strconv.Itoa(os.Getpid()), held.PID)
	}
	require.NoError(t, lock.Release())
	lock, err = flock.Acquire(path)
	require.NoError(t, err)
	require.NoError(t, lock.Release())
}

func TestTheNextInstanceStartsWhenTheFirstEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.lock")
	first, err := flock.Acquire(path)
	require.NoError(t, err)
	next := make(chan error, 1)
	go func() {
		lock, err := flock.Wait(t.Context(), path, time.Minute, quiet())
		if err == nil {
			err = lock.Release()
		}
		next <- err
	}()
	require.NoError(t, first.Release())
	require.NoError(t, <-next)
}

func TestALockWhoseFileWasRemovedIsTakenAgainOrGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run", "x.lock")
	lock, err := flock.Acquire(path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- lock.Keep(ctx) }()
	require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		var held *flock.HeldError
		if err == nil {
			_, err = flock.Acquire(path)
		}
		return errors.As(err, &held)
	}, 20*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-kept)
	require.NoError(t, lock.Release())

	lock, err = flock.Acquire(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	other, err := flock.Acquire(path)
	require.NoError(t, err)
	require.ErrorContains(t, lock.Keep(t.Context()), "taken by another")
	require.NoError(t, lock.Release())
	require.NoError(t, other.Release())
}
