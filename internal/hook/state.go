package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Bounds of what is read of a runtime, in bytes.
const (
	maxState  = 1 << 20
	maxConfig = 64 << 20
)

// Root returns the container's root directory: the working directory where
// that is it, else what the OCI state says that a hook gets on its standard
// input: the state's own "root" where a runtime adds it (crun), else root.path
// of the bundle's config.json, relative to the bundle. Of config.json nothing
// else is decoded.
func Root(stdin io.Reader) (string, error) {
	if root, ok := rootByDirectory(); ok {
		return root, nil
	}
	return rootByState(stdin)
}

func rootByState(stdin io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(stdin, maxState))
	if err != nil {
		return "", fmt.Errorf("read the container's state: %w", err)
	}
	var state struct {
		Bundle string `json:"bundle"`
		Root   string `json:"root"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return "", fmt.Errorf("the container's state is not JSON: %w", err)
	}
	if state.Root != "" {
		return state.Root, nil
	}
	if state.Bundle == "" {
		return "", errors.New("the container's state names no bundle")
	}
	return rootOfBundle(state.Bundle)
}

func rootOfBundle(bundle string) (string, error) {
	file := filepath.Join(bundle, "config.json")
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("read the container's configuration: %w", err)
	}
	defer f.Close()
	var config struct {
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxConfig)).Decode(&config); err != nil {
		return "", fmt.Errorf("the container's configuration %q: %w", file, err)
	}
	root := config.Root.Path
	if root == "" {
		return "", fmt.Errorf("the container's configuration %q names no root", file)
	}
	if !filepath.IsAbs(root) {
		root = filepath.Join(bundle, root)
	}
	return root, nil
}
