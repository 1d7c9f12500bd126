// Command gpu-device-plugin tells the kubelet which GPUs a node has, and keeps
// what nri-gpu injects them from: the inventory and the CDI specs.
//
// It asks no API server. inventory.go looks at the node and publishes what it
// finds, internal/deviceplugin serves the kubelet, daemon.go puts them
// together. NVML runs in a child process of this same program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/logging"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newCommand(os.LookupEnv).ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "gpu-device-plugin:", err)
	os.Exit(exitStatus(err))
}

// errUsage marks a command line that cannot be parsed.
var errUsage = errors.New("see gpu-device-plugin --help")

// exitStatus is 2 for what the user must correct before a restart can help.
func exitStatus(err error) int {
	if config.IsError(err) || errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

func newCommand(lookup func(string) (string, bool)) *cobra.Command {
	var cfg settings
	cmd := &cobra.Command{
		Use: "gpu-device-plugin", Short: "Advertise GPUs to the kubelet and write the CDI specs of a node", Version: version.String(),
		Args: noArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd.Flags(), lookup); err != nil {
				return err
			}
			if err := cfg.Validate(); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, logging.New(os.Stderr, cfg.Log.Level, cfg.Log.Format))
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w; %w", err, errUsage) })
	config.AddFileFlag(cmd.Flags())
	cfg.addFlags(cmd.Flags())
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(newWorker())
	return cmd
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q; %w", args[0], errUsage)
	}
	return nil
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
