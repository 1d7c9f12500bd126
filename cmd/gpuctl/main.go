// Command gpuctl is the node tool: it makes, lists and checks CDI specs, and
// shows what a container would get. Its subcommands are one file each.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvmlcmd"
	"github.com/nri-gpu/nri-gpu/internal/version"
)

func main() { os.Exit(cli.Execute(newRoot(os.Stdout), os.Stderr)) }

func newRoot(out io.Writer) *cobra.Command {
	root := cli.Prepare(&cobra.Command{Use: "gpuctl", Short: "Look at a GPU node and make CDI specs"})
	root.SetOut(out)
	root.AddCommand(newCDI(), newSimulate(), newStatus(), newCordon(), newUncordon(), newVersion(), nvmlcmd.New())
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
