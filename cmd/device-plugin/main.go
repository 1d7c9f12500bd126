// Command gpu-device-plugin tells the kubelet which GPUs a node has, and keeps
// what nri-gpu injects them from: the inventory and the CDI specs.
//
// It needs no API server. inventory.go looks at the node and publishes what it
// finds, configuration.go says what of it is offered, plugins.go has a kubelet
// plugin for each resource, daemon.go puts them together. compat.go takes the
// flags of NVIDIA's device plugin. NVML runs in a child process of this same
// program.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvmlcmd"
	"github.com/nri-gpu/nri-gpu/internal/logging"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

func main() { os.Exit(cli.Execute(newCommand(os.LookupEnv), os.Stderr)) }

func newCommand(lookup func(string) (string, bool)) *cobra.Command {
	var cfg settings
	cmd := cli.Prepare(&cobra.Command{
		Use: "gpu-device-plugin", Short: "Advertise GPUs to the kubelet and write the CDI specs of a node", Version: version.String(), Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Load(cmd.Flags(), lookup); err != nil {
				return err
			}
			cfg.translate(cmd.Flags())
			if err := config.Validate(cmd.Flags(), &cfg); err != nil {
				return err
			}
			log := logging.New(os.Stderr, cfg.Log.Level, cfg.Log.Format)
			logIgnored(cmd.Flags(), log)
			return run(cmd.Context(), cfg, log)
		},
	})
	config.AddFileFlag(cmd.Flags())
	cfg.addFlags(cmd.Flags())
	cmd.AddCommand(nvmlcmd.New())
	return cmd
}
