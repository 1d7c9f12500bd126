// Command nri-gpu is the NRI plugin: it meets every container at creation and
// gives those that were allocated a GPU what they need.
//
// It loads no driver library and asks no API server. node.go holds what it
// knows of the node, plugin.go answers the runtime, connect.go keeps the
// connection, daemon.go puts them together.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/logging"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

func main() { os.Exit(cli.Execute(newCommand(), os.Stderr)) }

func newCommand() *cobra.Command {
	var cfg settings
	cmd := cli.Prepare(&cobra.Command{
		Use: "nri-gpu", Short: "Inject GPUs into containers at creation", Version: version.String(), Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := config.Validate(cmd.Flags(), &cfg); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, logging.New(os.Stderr, cfg.Log.Level, cfg.Log.Format))
		},
	})
	config.AddFileFlag(cmd.Flags())
	cfg.addFlags(cmd.Flags())
	return cmd
}
