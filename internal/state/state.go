// Package state names the files that the two daemons share: the contract on
// disk between the device plugin, which writes the inventory and the CDI
// specs, and nri-gpu, which reads them and records what it injected.
//
// The state directory (/var/run/nri-gpu) is lost at reboot; the data directory
// (/var/lib/nri-gpu) is kept. Every file is replaced by WriteFile, so a reader
// never sees half a file.
package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a state directory.
type Dir string

// Inventory is the device.Inventory as JSON, written by the device plugin.
func (d Dir) Inventory() string { return filepath.Join(string(d), "inventory.json") }

// SpecDir holds the private CDI specs, written by the device plugin.
func (d Dir) SpecDir() string { return filepath.Join(string(d), "cdi") }

// Report says what was looked for in the driver root, and found or not.
func (d Dir) Report() string { return filepath.Join(string(d), "report.json") }

// Containers holds one record for each container that was injected.
func (d Dir) Containers() string { return filepath.Join(string(d), "containers") }

// Container is the record of one container, by its runtime's ID.
func (d Dir) Container(id string) string { return filepath.Join(d.Containers(), id+".json") }

// HealthSocket is where nri-gpu serves gRPC health: SERVING while it is
// registered with the runtime, synchronised, and has a valid spec.
func (d Dir) HealthSocket() string { return filepath.Join(string(d), "nri-gpu.sock") }

// Lock is the lock file of one daemon, held for its life.
func (d Dir) Lock(daemon string) string { return filepath.Join(string(d), daemon+".lock") }

// DataDir is a data directory.
type DataDir string

// Key is the node's signing key for the annotation carrier.
func (d DataDir) Key() string { return filepath.Join(string(d), "alloc.key") }

// Carrier is the carrier that nri-gpu chose for the runtime it met.
func (d DataDir) Carrier() string { return filepath.Join(string(d), "carrier.json") }

// Faults holds the faults of cards that must be mended before they are used.
func (d DataDir) Faults() string { return filepath.Join(string(d), "faults.json") }

// Cordons holds the cards that an operator has taken out of use.
func (d DataDir) Cordons() string { return filepath.Join(string(d), "cordons.json") }

// WriteFile replaces a file atomically: a temporary file in the same
// directory, permissions set before the rename, synced, renamed, and the
// directory synced. The directory is created when missing. A file that already
// has this content and mode is left alone and changed is false, so that
// watchers wake only for a change.
func WriteFile(path string, data []byte, perm fs.FileMode) (changed bool, err error) {
	if same(path, data, perm) {
		return false, nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("create directory for %q: %w", path, err)
	}
	// The name starts with a dot and ends in none of the suffixes that CDI
	// readers look for.
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return false, fmt.Errorf("create temporary file for %q: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfPresent(f.Name()))
		}
	}()
	if err := fill(f, data, perm); err != nil {
		return false, fmt.Errorf("write %q: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return false, fmt.Errorf("replace %q: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return false, fmt.Errorf("sync directory of %q: %w", path, err)
	}
	return true, nil
}

func same(path string, data []byte, perm fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != perm || info.Size() != int64(len(data)) {
		return false
	}
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, data)
}

func fill(f *os.File, data []byte, perm fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func removeIfPresent(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
