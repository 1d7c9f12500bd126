package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/discovery"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvmlcmd"
	"github.com/nri-gpu/nri-gpu/internal/discovery/static"
	"github.com/nri-gpu/nri-gpu/internal/health"
	"github.com/nri-gpu/nri-gpu/internal/nvidiaconfig"
	"github.com/nri-gpu/nri-gpu/internal/resources"
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
	// MIGStrategy, Allocation and ConfigFile say what is offered; configuration.go
	// puts them together.
	MIGStrategy, Allocation, ConfigFile string
	// XIDPolicy changes what an XID asks for, and HealthQuiet is how long a card
	// is watched that was not usable.
	XIDPolicy   []string
	HealthQuiet time.Duration
	// MPSRoot is where MPS daemons have their directories; empty: in the state
	// directory.
	MPSRoot string
	apiSettings
	compat compat
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	s.AddFlags(fs, defaultListen)
	fs.StringVar(&s.Inventory, "inventory", "", "take the GPUs from a JSON file and not from NVML; it is read again at each look")
	fs.DurationVar(&s.DiscoverInterval, "discover-interval", 5*time.Second, "time between two looks at the node")
	fs.DurationVar(&s.RetryInterval, "retry-interval", 2*time.Second, "time between two looks at a node whose driver is not ready")
	fs.StringVar(&s.MIGStrategy, "mig-strategy", string(resources.MIGNone), "how GPUs in MIG mode are offered: none, single or mixed")
	fs.StringVar(&s.Allocation, "shared-devices-allocation-policy", nvidiaconfig.Distributed, "which card a replica is taken of: distributed or packed")
	fs.StringVar(&s.ConfigFile, "config-file", "", "configuration of sharing and resources, in the format of NVIDIA's device plugin; it is read again when it changes")
	fs.StringSliceVar(&s.XIDPolicy, "xid-policy", nil, "what an XID asks for, such as 94=reset: ignore, restart-app, reset, reboot or replace; the default is NVIDIA's catalogue")
	fs.DurationVar(&s.HealthQuiet, "health-quiet", 10*time.Second, "how long a card that was not usable must have been usable before it is offered again")
	config.AddEnvAlias(fs, "mig-strategy", "MIG_STRATEGY")
	config.AddEnvAlias(fs, "shared-devices-allocation-policy", "SHARED_DEVICES_ALLOCATION_POLICY")
	config.AddEnvAlias(fs, "config-file", "CONFIG_FILE")
	fs.StringVar(&s.MPSRoot, "mps-root", "", "directory for the pipes of MPS daemons; empty: mps in the state directory")
	config.AddEnvAlias(fs, "mps-root", "MPS_ROOT")
	s.apiSettings.addFlags(fs)
	s.compat.addFlags(fs)
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
	fault := func(key, rule string) { errs = append(errs, &config.Error{Source: "default", Key: key, Rule: rule}) }
	for key, file := range map[string]string{"inventory": s.Inventory, "config-file": s.ConfigFile, "mps-root": s.MPSRoot} {
		if file != "" && !filepath.IsAbs(file) {
			fault(key, fmt.Sprintf("%q must be an absolute path", file))
		}
	}
	if _, err := health.ParsePolicy(s.XIDPolicy); err != nil {
		fault("xid-policy", err.Error())
	}
	errs = append(errs, s.validateAPI(s.ConfigFile))
	if s.HealthQuiet < 0 {
		fault("health-quiet", "must not be negative")
	}
	if !slices.Contains([]string{nvidiaconfig.Distributed, nvidiaconfig.Packed}, s.Allocation) {
		fault("shared-devices-allocation-policy", fmt.Sprintf("%q is neither %q nor %q", s.Allocation, nvidiaconfig.Distributed, nvidiaconfig.Packed))
	}
	if err := s.resources().Validate(); err != nil {
		fault("mig-strategy", err.Error())
	}
	return errors.Join(errs...)
}

// resources is what the flags alone say about what is offered.
func (s *settings) resources() *resources.Config {
	return &resources.Config{Whole: s.ResourceName, MIG: resources.MIGStrategy(s.MIGStrategy), Packed: s.Allocation == nvidiaconfig.Packed}
}

func (s *settings) xidPolicy() health.Policy {
	p, err := health.ParsePolicy(s.XIDPolicy)
	if err != nil {
		panic(err) // Validate has parsed it
	}
	return p
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
