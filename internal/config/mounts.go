package config

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// DriverMounts is who mounts the driver's files in a container.
type DriverMounts string

// The values.
const (
	// MountsByHook has gpu-hook mount them, which takes the least time. It needs
	// Linux 5.12; on an older kernel the runtime does it.
	MountsByHook DriverMounts = "hook"
	// MountsByRuntime lists them in the container's configuration.
	MountsByRuntime DriverMounts = "runtime"
)

// AddFlag defines the flag.
func (m *DriverMounts) AddFlag(fs *pflag.FlagSet, value DriverMounts) {
	fs.StringVar((*string)(m), "driver-mounts", string(value), "who mounts the driver's files: hook (gpu-hook, in the least time) or runtime (as mounts of the container's configuration)")
}

// Validate checks the value.
func (m *DriverMounts) Validate() error {
	if !slices.Contains([]DriverMounts{MountsByHook, MountsByRuntime}, *m) {
		return invalid("driver-mounts", fmt.Sprintf("%q is neither %q nor %q", *m, MountsByHook, MountsByRuntime))
	}
	return nil
}
