// Package nvmlcmd is the command by which a program becomes its own NVML worker.
package nvmlcmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
)

// New returns the hidden command; its argument is the library's path.
func New() *cobra.Command {
	return &cobra.Command{
		Use: nvml.WorkerCommand + " LIBRARY", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return nvml.Serve(args[0], nvml.GPUDeadline, os.Stdin, os.Stdout)
		},
	}
}
