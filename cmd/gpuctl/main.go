// Command gpuctl is the node tool: it makes, lists and checks CDI specs, and
// shows what a container would get. Its subcommands are one file each.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot(os.Stdout).ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "gpuctl:", err)
	if config.IsError(err) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// errUsage marks a command line that cannot be used; the exit status is 2.
var errUsage = errors.New("see gpuctl --help")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w; %w", fmt.Errorf(format, args...), errUsage)
}

func newRoot(out io.Writer) *cobra.Command {
	root := &cobra.Command{Use: "gpuctl", Short: "Look at a GPU node and make CDI specs", SilenceUsage: true, SilenceErrors: true}
	root.SetOut(out)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	root.AddCommand(newCDI(), newSimulate(), newVersion(), newWorker())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	}
}

// gpuDeadline bounds what the driver may take for one GPU.
const gpuDeadline = 3 * time.Second

// newWorker is the process in which NVML is loaded.
func newWorker() *cobra.Command {
	return &cobra.Command{
		Use: nvml.WorkerCommand + " LIBRARY", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return nvml.Serve(args[0], gpuDeadline, os.Stdin, os.Stdout)
		},
	}
}
