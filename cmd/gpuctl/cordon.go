package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/health"
)

// node is where the commands that are about this node find what it has.
type node struct{ config.Paths }

func newCordon() *cobra.Command {
	var n node
	var reason string
	cmd := cli.Prepare(&cobra.Command{
		Use: "cordon UUID --reason TEXT", Short: "Take one card or MIG device out of use; what runs on it goes on",
		Args: oneUUID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return cli.Usage("--reason says to others why the card is out of use; give one")
			}
			if err := n.change(args[0], func(all *health.Cordons) {
				all.Cordoned[args[0]] = health.Cordon{Reason: reason, Since: time.Now().UTC()}
			}); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is cordoned: %s\n", args[0], reason)
			return err
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why; whoever looks at the node sees it")
	n.AddFlags(cmd.Flags())
	return cmd
}

func newUncordon() *cobra.Command {
	var n node
	cmd := cli.Prepare(&cobra.Command{
		Use: "uncordon UUID", Short: "Put a card or MIG device into use again, and forget the faults that it had",
		Args: oneUUID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := n.change(args[0], func(all *health.Cordons) {
				delete(all.Cordoned, args[0])
				all.Cleared[args[0]] = rand.Text()
			}); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is not cordoned any more, and the faults that it had are forgotten\n", args[0])
			return err
		},
	})
	n.AddFlags(cmd.Flags())
	return cmd
}

func oneUUID(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usage("give the UUID of one card or MIG device; `gpuctl status` lists them")
	}
	return nil
}

// change edits the cordons of the node. A UUID that the node does not have is
// refused when the node's devices are known: it is most likely misspelt.
func (n *node) change(uuid string, edit func(*health.Cordons)) error {
	if err := n.Validate(); err != nil {
		return err
	}
	path := n.Data().Cordons()
	all, err := health.ReadCordons(path)
	if err != nil {
		return fmt.Errorf("%w; correct or remove it", err)
	}
	_, cordoned := all.Cordoned[uuid]
	if inv, err := n.inventory(); err == nil && !cordoned {
		if _, known := inv.Find(uuid); !known {
			return fmt.Errorf("this node has no device %q; it has %v", uuid, uuids(inv))
		}
	}
	edit(&all)
	return health.WriteCordons(path, all)
}

func (n *node) inventory() (device.Inventory, error) {
	var inv device.Inventory
	data, err := os.ReadFile(n.State().Inventory())
	if err == nil {
		err = json.Unmarshal(data, &inv)
	}
	return inv, err
}

func uuids(inv device.Inventory) []string {
	var out []string
	for _, a := range inv.Devices() {
		out = append(out, a.UUID)
	}
	return out
}
