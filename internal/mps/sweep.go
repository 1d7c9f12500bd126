package mps

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/state"
)

// cardsFile, in a resource's directory, lists the cards whose compute mode was
// changed, one UUID a line.
const cardsFile = "cards"

// remember writes which cards are about to be made exclusive.
func (c *Config) remember(r *Resource) error {
	file := filepath.Join(c.resourceDir(r), cardsFile)
	if _, err := state.WriteFile(file, []byte(strings.Join(uuids(r.Devices), "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("note the cards of MPS: %w", err)
	}
	return nil
}

// release ends all that was served in a resource's directory: processes, compute
// modes and the directory.
func (c *Config) release(ctx context.Context, p *Programs, dir string, log logrus.FieldLogger) {
	errs := []error{killMarked(dir, c.Timing.Answer)}
	if data, err := os.ReadFile(filepath.Join(dir, cardsFile)); err == nil {
		errs = append(errs, p.shared(ctx, c.Timing.Start, strings.Fields(string(data))))
	} else if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("read which cards MPS had: %w", err))
	}
	if err := errors.Join(append(errs, os.RemoveAll(dir))...); err != nil {
		log.WithError(err).Warn("something of MPS is left")
	}
}

// isOurs tells whether a directory is one of a resource, by all that is in it: a
// root that was mistyped costs nobody anything.
func isOurs(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || !strings.Contains(filepath.Base(dir), "_") {
		return false
	}
	for _, e := range entries {
		name, err := hex.DecodeString(e.Name())
		epoch := e.IsDir() && err == nil && len(name) == epochBytes
		// A dot begins the file that was to become the list of cards.
		if !epoch && e.Name() != cardsFile && !strings.HasPrefix(e.Name(), "."+cardsFile) {
			return false
		}
	}
	return true
}

// sweep clears away what a predecessor left that did not stop.
func (c *Config) sweep(ctx context.Context, p *Programs) {
	entries, err := os.ReadDir(c.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.WithError(err).Warn("what an earlier run left of MPS is not known")
	}
	shm := c.ownShm()
	for _, e := range entries {
		if !isOurs(filepath.Join(c.Root, e.Name())) {
			continue
		}
		c.Log.WithField("directory", e.Name()).Info("an earlier run did not stop its MPS daemon; it is cleared away")
		c.release(ctx, p, filepath.Join(c.Root, e.Name()), c.Log)
	}
	if shm == "" {
		return
	}
	left, err := filepath.Glob(filepath.Join(shm, "*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		c.Log.WithError(err).Warn("shared memory of an earlier run is left")
	}
}
