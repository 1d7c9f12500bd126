// Command nri-gpu is the NRI plugin: it meets every container at creation and
// gives those that were allocated a GPU what they need.
//
// It loads no driver library and asks no API server. node.go holds what it
// knows of the node, plugin.go answers the runtime, connect.go keeps the
// connection, daemon.go puts them together.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/logging"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "nri-gpu:", err)
	if config.IsError(err) || errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

// errUsage marks a command line that cannot be parsed.
var errUsage = errors.New("see nri-gpu --help")

func newCommand() *cobra.Command {
	var cfg settings
	cmd := &cobra.Command{
		Use: "nri-gpu", Short: "Inject GPUs into containers at creation", Version: version.String(),
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd.Flags(), os.LookupEnv); err != nil {
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
	return cmd
}
