package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/discovery"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvmlcmd"
	"github.com/nri-gpu/nri-gpu/internal/discovery/static"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// defaultListen is where health and metrics are served.
const defaultListen = "127.0.0.1:8471"

// minInterval keeps a typing error from asking the driver without a pause.
const minInterval = 100 * time.Millisecond

// settings are the daemon's.
type settings struct {
	config.Daemon
	// Inventory is a file that describes the GPUs; empty: ask NVML.
	Inventory string
	// DiscoverInterval is the time between two looks at a node that is ready,
	// RetryInterval at one that is not.
	DiscoverInterval, RetryInterval time.Duration
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	s.AddFlags(fs, defaultListen)
	fs.StringVar(&s.Inventory, "inventory", "", "take the GPUs from a JSON file and not from NVML; it is read again at each look")
	fs.DurationVar(&s.DiscoverInterval, "discover-interval", 5*time.Second, "time between two looks at the node")
	fs.DurationVar(&s.RetryInterval, "retry-interval", 2*time.Second, "time between two looks at a node whose driver is not ready")
}

// Validate checks every setting.
func (s *settings) Validate() error {
	errs := []error{s.Daemon.Validate()}
	for _, f := range []struct {
		key   string
		value time.Duration
	}{{"discover-interval", s.DiscoverInterval}, {"retry-interval", s.RetryInterval}} {
		if f.value < minInterval {
			errs = append(errs, &config.Error{Source: "default", Key: f.key, Rule: fmt.Sprintf("%s is less than %s", f.value, minInterval)})
		}
	}
	if s.Inventory != "" && !filepath.IsAbs(s.Inventory) {
		errs = append(errs, &config.Error{Source: "default", Key: "inventory", Rule: fmt.Sprintf("%q must be an absolute path", s.Inventory)})
	}
	return errors.Join(errs...)
}

// guardSpec is the path that the guard and, where the runtime injects, the
// whole spec have in the runtime's directory.
func (s *settings) guardSpec() string { return filepath.Join(s.CDIDir, cdi.SpecFileName(cdi.KindGPU)) }

func (s *settings) specgen() specgen.Config {
	return specgen.Config{Roots: s.Roots(), Mapping: s.Mapping(), HookPath: s.hook()}
}

// discoverer is the source of the inventory, and what ends it.
func (s *settings) discoverer() (d discovery.Discoverer, stop func(), err error) {
	if s.Inventory != "" {
		return static.New(s.Inventory), func() {}, nil
	}
	n, err := nvmlcmd.Discoverer(s.Roots(), s.NVMLLibrary)
	if err != nil {
		return nil, nil, err
	}
	return n, n.Close, nil
}

// hook is where gpu-hook itself lies. An installation names it by the link of
// its current version; specs name the version's own file, which stays when the
// link is switched, so that what has read a spec can go on with it.
func (s *settings) hook() string {
	m := s.Mapping()
	resolved, err := filepath.EvalSymlinks(m.FromHost(s.HookPath))
	if err != nil {
		return s.HookPath // it is not there yet; injection says so when it is needed
	}
	return m.ToHost(resolved)
}
