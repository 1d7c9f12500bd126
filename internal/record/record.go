// Package record keeps the node's account of which container holds which card:
// one JSON file for each container, in the state directory.
//
// A Writer owns the directory. Its methods only queue what is to be written, so
// that the handler that a runtime waits for does no I/O; one goroutine writes.
package record

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/state"
)

// Container is the record of one container.
type Container struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	PodUID    string `json:"podUID"`
	// Devices are qualified names.
	Devices []string `json:"devices"`
	// Capabilities are the driver capabilities that went in; unknown after a
	// restart that lost the record.
	Capabilities []string `json:"capabilities,omitempty"`
	// Carrier is how the names came.
	Carrier string `json:"carrier,omitempty"`
	// Skipped are mounts that a volume of the pod's took the place of.
	Skipped []string `json:"skipped,omitempty"`
	// Injected is when the decision was made.
	Injected time.Time `json:"injected,omitzero"`
	// Microseconds is how long it took.
	Microseconds int64 `json:"microseconds,omitempty"`
}

// Writer writes records. Make one with New and run Run.
type Writer struct {
	dir   state.Dir
	log   logrus.FieldLogger
	mu    sync.Mutex
	queue []func()
	wake  chan struct{}
	// live are the records that there should be; only the writing goroutine
	// touches them.
	live map[string]Container
}

// New returns a Writer for a state directory.
func New(dir state.Dir, log logrus.FieldLogger) *Writer {
	return &Writer{dir: dir, log: log, wake: make(chan struct{}, 1), live: map[string]Container{}}
}

// Put writes a container's record, over an older one.
func (w *Writer) Put(c Container) { w.enqueue(func() { w.put(c) }) }

// Repair writes the records that were lost or damaged: what lies below /run may
// be removed under a running daemon.
func (w *Writer) Repair() {
	w.enqueue(func() {
		for _, c := range w.live {
			w.put(c)
		}
	})
}

// Remove removes a container's record, if there is one.
func (w *Writer) Remove(id string) { w.enqueue(func() { w.remove(id) }) }

// Reset makes the records those of the containers that are given: of one that
// has a record already the record stays, since it knows more.
func (w *Writer) Reset(all []Container) {
	w.enqueue(func() {
		live := map[string]bool{}
		for _, c := range all {
			live[c.ID+".json"] = true
			if before, err := read(w.dir.Container(c.ID)); err == nil && before.ID == c.ID {
				c = before
			}
			w.put(c)
		}
		for id := range w.live {
			if !live[id+".json"] {
				delete(w.live, id)
			}
		}
		entries, err := os.ReadDir(w.dir.Containers())
		if err != nil {
			return // nothing was ever written
		}
		for _, e := range entries {
			if !live[e.Name()] {
				w.remove(strings.TrimSuffix(e.Name(), ".json"))
			}
		}
	})
}

// Run writes what is queued until ctx ends, and then what is still queued.
func (w *Writer) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			w.drain()
			return
		case <-w.wake:
			w.drain()
		}
	}
}

// Flush waits until all that was queued before is written.
func (w *Writer) Flush(ctx context.Context) error {
	done := make(chan struct{})
	w.enqueue(func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write container records: %w", ctx.Err())
	}
}

func (w *Writer) enqueue(f func()) {
	w.mu.Lock()
	w.queue = append(w.queue, f)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer) drain() {
	w.mu.Lock()
	queue := w.queue
	w.queue = nil
	w.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

// valid guards against an ID that would leave the directory.
func valid(id string) bool { return id != "" && id == filepath.Base(id) && !strings.HasPrefix(id, ".") }

// read returns a record that was written before.
func read(path string) (Container, error) {
	var c Container
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	return c, err
}

func (w *Writer) put(c Container) {
	if !valid(c.ID) {
		w.log.Errorf("container ID %q is not a file name; its record is not written", c.ID)
		return
	}
	w.live[c.ID] = c
	data, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		_, err = state.WriteFile(w.dir.Container(c.ID), append(data, '\n'), 0o644)
	}
	if err != nil {
		w.log.WithError(err).WithField("container", c.ID).Error("the record of a container could not be written")
	}
}

func (w *Writer) remove(id string) {
	if !valid(id) {
		return
	}
	delete(w.live, id)
	if err := os.Remove(w.dir.Container(id)); err != nil && !os.IsNotExist(err) {
		w.log.WithError(err).WithField("container", id).Error("the record of a container could not be removed")
	}
}
