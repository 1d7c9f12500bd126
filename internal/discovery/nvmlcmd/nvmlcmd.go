// Package nvmlcmd makes a program its own NVML worker: the command that runs the
// worker, and the Discoverer that starts it.
package nvmlcmd

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/driverroot"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Discoverer returns a Discoverer whose worker is this program. library is the
// path of libnvidia-ml.so.1; empty: it is looked for in the driver root.
func Discoverer(r roots.Roots, library string) (*nvml.Discoverer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which NVML runs in: %w", err)
	}
	find := func() (string, error) { return driverroot.NVML(r) }
	if library != "" {
		find = func() (string, error) { return library, nil }
	}
	return nvml.New(nvml.Options{Roots: r, Command: []string{self, nvml.WorkerCommand}, Library: find}), nil
}

// New returns the hidden command; its argument is the library's path.
func New() *cobra.Command {
	return &cobra.Command{
		Use: nvml.WorkerCommand + " LIBRARY", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return nvml.Serve(args[0], nvml.GPUDeadline, os.Stdin, os.Stdout)
		},
	}
}
