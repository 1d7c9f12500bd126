package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// The two ways of injecting.
const (
	// InjectionNRI injects at container creation, through nri-gpu.
	InjectionNRI = "nri"
	// InjectionCDI leaves injection to the runtime: the whole spec takes the
	// guard's place in the CDI directory and nri-gpu is not needed.
	InjectionCDI = "cdi"
)

// Paths says where things lie on the node; every program has these.
type Paths struct {
	DriverRoot, DevRoot, HostRoot string
	NVMLLibrary                   string
	StateDir, DataDir             string
	CDIDir                        string
	HookPath                      string
	HostPathMap                   []string
}

// AddFlags defines the flags, with their defaults.
func (p *Paths) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.DriverRoot, "driver-root", "", "where the driver's files lie as this program sees them; empty: look in the known places")
	fs.StringVar(&p.DevRoot, "dev-root", "/", "directory that contains the dev/ with the NVIDIA device nodes")
	fs.StringVar(&p.HostRoot, "host-root", "/", "directory that contains the host's proc/ and sys/")
	fs.StringVar(&p.NVMLLibrary, "nvml-library", "", "path of libnvidia-ml.so.1; empty: from the driver root")
	fs.StringVar(&p.StateDir, "state-dir", "/var/run/nri-gpu", "directory for what the daemons share; may be lost at reboot")
	fs.StringVar(&p.DataDir, "data-dir", "/var/lib/nri-gpu", "directory for what must outlive a reboot")
	fs.StringVar(&p.CDIDir, "cdi-dir", "/var/run/cdi", "directory in which the runtime looks for CDI specs")
	fs.StringVar(&p.HookPath, "hook-path", "/usr/local/lib/nri-gpu/current/gpu-hook", "path of gpu-hook on the host")
	fs.StringSliceVar(&p.HostPathMap, "host-path-map", nil, "for a daemon in a pod: /path/seen/here=/path/on/host, repeatable")
}

// Roots returns the roots to read below.
func (p *Paths) Roots() roots.Roots {
	return roots.Roots{Driver: clean(p.DriverRoot), Dev: clean(p.DevRoot), Host: clean(p.HostRoot)}
}

// State returns the state directory.
func (p *Paths) State() state.Dir { return state.Dir(p.StateDir) }

// Data returns the data directory.
func (p *Paths) Data() state.DataDir { return state.DataDir(p.DataDir) }

// Mapping returns the host path mapping; Validate has checked it.
func (p *Paths) Mapping() roots.Mapping {
	m, err := roots.ParseMapping(p.HostPathMap)
	if err != nil {
		return nil
	}
	return m
}

// Validate checks every path.
func (p *Paths) Validate() error {
	var errs []error
	for _, c := range []struct {
		flag, value string
		optional    bool
	}{
		{"driver-root", p.DriverRoot, true},
		{"dev-root", p.DevRoot, false},
		{"host-root", p.HostRoot, false},
		{"nvml-library", p.NVMLLibrary, true},
		{"state-dir", p.StateDir, false},
		{"data-dir", p.DataDir, false},
		{"cdi-dir", p.CDIDir, false},
		{"hook-path", p.HookPath, false},
	} {
		errs = append(errs, absolute(c.flag, c.value, c.optional))
	}
	if _, err := roots.ParseMapping(p.HostPathMap); err != nil {
		errs = append(errs, invalid("host-path-map", err.Error()))
	}
	return errors.Join(errs...)
}

// Daemon holds the settings that both daemons share.
type Daemon struct {
	Paths
	KubeletDir          string
	NRISocket           string
	Injection           string
	DriverMounts        DriverMounts
	ResourceName        string
	AllowedCapabilities []string
	ListenAddress       string
	// LockWait is how long to wait for another instance to end.
	LockWait time.Duration
	Log      Log
}

// AddFlags defines the flags, with their defaults. Each daemon listens for
// health and metrics on a port of its own.
func (d *Daemon) AddFlags(fs *pflag.FlagSet, listen string) {
	d.Paths.AddFlags(fs)
	d.Log.AddFlags(fs)
	fs.StringVar(&d.KubeletDir, "kubelet-dir", "/var/lib/kubelet/device-plugins", "the kubelet's device plugin directory")
	fs.StringVar(&d.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket")
	fs.StringVar(&d.Injection, "injection", InjectionNRI, "who injects: nri (nri-gpu, at container creation) or cdi (the runtime, from the CDI directory)")
	d.DriverMounts.AddFlag(fs, MountsByHook)
	fs.StringVar(&d.ResourceName, "resource-name", "nvidia.com/gpu", "the extended resource that pods ask for")
	fs.StringSliceVar(&d.AllowedCapabilities, "allowed-capabilities", []string{cdi.DeviceAll}, "driver capabilities that containers may ask for")
	fs.StringVar(&d.ListenAddress, "listen-address", listen, "address for health and metrics; empty: none")
	fs.DurationVar(&d.LockWait, "lock-wait", 30*time.Second, "how long to wait at start for another instance on this node to end")
}

// Capabilities returns the allowed capabilities; Validate has checked them.
func (d *Daemon) Capabilities() []cdi.Capability {
	caps, err := cdi.ParseCapabilities(strings.Join(d.AllowedCapabilities, ","))
	if err != nil {
		return nil
	}
	return caps
}

// Validate checks every setting and reports all faults at once.
func (d *Daemon) Validate() error {
	errs := []error{
		d.Paths.Validate(), d.Log.Validate(),
		absolute("kubelet-dir", d.KubeletDir, false),
		absolute("nri-socket", d.NRISocket, false),
		resourceName(d.ResourceName), d.DriverMounts.Validate(),
	}
	if d.LockWait < 0 {
		errs = append(errs, invalid("lock-wait", "must not be negative"))
	}
	if !slices.Contains([]string{InjectionNRI, InjectionCDI}, d.Injection) {
		errs = append(errs, invalid("injection", fmt.Sprintf("%q is neither %q nor %q", d.Injection, InjectionNRI, InjectionCDI)))
	}
	if _, err := cdi.ParseCapabilities(strings.Join(d.AllowedCapabilities, ",")); err != nil {
		errs = append(errs, invalid("allowed-capabilities", err.Error()))
	}
	return errors.Join(errs...)
}

// Log holds the settings of the log.
type Log struct{ Level, Format string }

// AddFlags defines the flags, with their defaults.
func (l *Log) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&l.Level, "log-level", "info", "error, warn, info, debug or trace")
	fs.StringVar(&l.Format, "log-format", "text", "text or json")
}

// Validate checks both.
func (l *Log) Validate() error {
	var errs []error
	if _, err := logrus.ParseLevel(l.Level); err != nil {
		errs = append(errs, invalid("log-level", fmt.Sprintf("%q is not error, warn, info, debug or trace", l.Level)))
	}
	if l.Format != "text" && l.Format != "json" {
		errs = append(errs, invalid("log-format", fmt.Sprintf("%q is neither text nor json", l.Format)))
	}
	return errors.Join(errs...)
}

// invalid is a fault found after all sources were joined; Validate finds out
// where the value came from.
func invalid(flag, rule string) error { return &Error{Source: sourceDefault, Key: flag, Rule: rule} }

func absolute(flag, value string, optional bool) error {
	if value == "" && optional {
		return nil
	}
	if !filepath.IsAbs(value) {
		return invalid(flag, fmt.Sprintf("%q must be an absolute path", value))
	}
	return nil
}

func resourceName(name string) error {
	if err := resources.ValidName(name); err != nil {
		return invalid("resource-name", err.Error())
	}
	return nil
}

func clean(p string) string {
	if p == "" {
		return ""
	}
	return filepath.Clean(p)
}
