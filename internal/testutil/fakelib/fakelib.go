// Package fakelib builds the fake libnvidia-ml.so.1 of test/fakenvml for tests,
// and names its profiles.
package fakelib

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// Source is the directory test/fakenvml of this checkout.
func Source() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "test", "fakenvml")
}

// Profile is the path of a machine: t4x1, a100x8, h100x8-mig or mixed.
func Profile(name string) string { return filepath.Join(Source(), name+".json") }

// Build compiles the library to a path.
func Build(ctx context.Context, out string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(Source(), "build.sh"), out)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the fake NVML: %w\n%s", err, text)
	}
	return nil
}

// Config is a fake machine that a test can change.
type Config map[string]any

// Load reads a profile.
func Load(name string) (Config, error) { return Read(Profile(name)) }

// Read reads a machine from a file of any place.
func Read(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("fake machine %s: %w", path, err)
	}
	return c, nil
}

// Device is one card of the machine.
func (c Config) Device(i int) map[string]any {
	devices, _ := c["devices"].([]any)
	d, _ := devices[i].(map[string]any)
	return d
}

// Write replaces the file that the library reads; by rename, so that a change
// shows as another inode at once.
func (c Config) Write(path string) error {
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
