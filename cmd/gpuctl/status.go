package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/health"
)

func newStatus() *cobra.Command {
	var n node
	cmd := cli.Prepare(&cobra.Command{
		Use: "status", Short: "List the devices of this node, whether each may be used, and why not", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := n.Validate(); err != nil {
				return err
			}
			inv, err := n.inventory()
			if err != nil {
				return fmt.Errorf("the device plugin has written no inventory (%w); start it, or see its log", err)
			}
			if inv.Driver.Reason != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "driver: %s: %s\n", inv.Driver.State, inv.Driver.Reason)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "INDEX\tUUID\tMODEL\tHEALTHY\tREASON")
			for _, a := range inv.Devices() {
				model := a.GPU.Model
				if a.MIG != nil {
					model = "MIG " + a.MIG.Profile
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%t\t%s\n", a.Index(), a.UUID, model, a.Health.Healthy, a.Health.Reason)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			faults, err := health.ReadFaults(n.Data().Faults())
			for _, f := range faults {
				fmt.Fprintf(cmd.OutOrStdout(), "fault of %s since %s, seen %d times: %s\n", f.Device, f.Since.Local().Format("2006-01-02 15:04:05"), f.Count, f.Reason)
			}
			return err
		},
	})
	n.AddFlags(cmd.Flags())
	return cmd
}
