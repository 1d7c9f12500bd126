package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/static"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

type simulation struct {
	config.Paths
	file, inventory, specDir string
	allowed                  []string
	driverMounts             config.DriverMounts
}

func newSimulate() *cobra.Command {
	var s simulation
	cmd := &cobra.Command{
		Use: "simulate -f CREATECONTAINER.json", Short: "Show what nri-gpu would do with a container", Args: cobra.NoArgs,
		Long: `Show what nri-gpu would do with a container, by the code that it runs.

The file holds NRI's CreateContainerRequest as JSON: {"pod": {...}, "container": {...}}. Names that the kubelet would
pass stand in container.CDIDevices. The node is that of the state directory; --inventory and --spec-dir take others.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := load(cmd); err != nil {
				return err
			}
			if err := config.Validate(cmd.Flags(), config.All{&s.Paths, &s.driverMounts}); err != nil {
				return err
			}
			return s.run(cmd)
		},
	}
	f := cmd.Flags()
	config.AddFileFlag(f)
	s.AddFlags(f)
	s.driverMounts.AddFlag(f, config.MountsByHook)
	f.StringVarP(&s.file, "file", "f", "", "the request; - reads standard input")
	f.StringVar(&s.inventory, "inventory", "", "inventory.json; empty: the state directory's")
	f.StringVar(&s.specDir, "spec-dir", "", "directory of the private specs; empty: the state directory's")
	f.StringSliceVar(&s.allowed, "allowed-capabilities", []string{cdi.DeviceAll}, "driver capabilities that containers may ask for")
	return cmd
}

// outcome is what is printed.
type outcome struct {
	// Decision is not-ours, inject, environment or refuse.
	Decision     string          `json:"decision"`
	Refusal      string          `json:"refusal,omitempty"`
	Devices      []string        `json:"devices,omitempty"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Skipped      []string        `json:"skipped,omitempty"`
	Adjustment   json.RawMessage `json:"adjustment,omitempty"`
}

func (s *simulation) run(cmd *cobra.Command) error {
	caps, err := cdi.ParseCapabilities(strings.Join(s.allowed, ","))
	if err != nil {
		return cli.Usage("--allowed-capabilities: %w", err)
	}
	req, err := s.request(cmd.InOrStdin())
	if err != nil {
		return err
	}
	injector, err := s.injector(caps)
	if err != nil {
		return err
	}
	d, err := injector.Decide(req.GetPod(), req.GetContainer())
	out, err := describe(d, err)
	if err != nil {
		return err
	}
	return printJSON(cmd.OutOrStdout(), out)
}

func (s *simulation) request(stdin io.Reader) (*api.CreateContainerRequest, error) {
	var data []byte
	var err error
	switch s.file {
	case "":
		return nil, cli.Usage("-f is needed")
	case "-":
		data, err = io.ReadAll(stdin)
	default:
		data, err = os.ReadFile(s.file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	req := &api.CreateContainerRequest{}
	if err := protojson.Unmarshal(data, req); err != nil {
		return nil, cli.Usage("%s is not a CreateContainerRequest as JSON: %w", s.file, err)
	}
	return req, nil
}

func (s *simulation) injector(caps []cdi.Capability) (*inject.Injector, error) {
	if s.inventory == "" {
		s.inventory = s.State().Inventory()
	}
	if s.specDir == "" {
		s.specDir = s.State().SpecDir()
	}
	data, err := os.ReadFile(s.inventory)
	if err != nil {
		return nil, fmt.Errorf("read the node's inventory: %w; the device plugin writes it", err)
	}
	inv, err := static.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.inventory, err)
	}
	resolver := cdi.NewResolver(s.specDir, s.Mapping().FromHost)
	if err := resolver.Load(); err != nil {
		return nil, err
	}
	var keys *cdi.Keyring
	if ring, err := cdi.ReadKeyring(s.Data().Key()); err == nil {
		keys = ring
	}
	return &inject.Injector{
		Resolver: resolver, Health: func(name string) string { return healthOf(inv, name) }, Keys: func() *cdi.Keyring { return keys },
		Local: s.Mapping().FromHost, Policy: inject.Policy{Capabilities: caps}, HookMounts: s.driverMounts == config.MountsByHook,
	}, nil
}

func healthOf(inv device.Inventory, name string) string {
	for _, a := range inv.Devices() {
		if cdi.DeviceName(a.UUID) == name {
			return a.Health.Reason
		}
	}
	return "it is not in the node's inventory"
}

func describe(d *inject.Decision, err error) (outcome, error) {
	var refusal *inject.Refusal
	switch {
	case errors.As(err, &refusal):
		return outcome{Decision: "refuse", Refusal: err.Error()}, nil
	case err != nil:
		return outcome{}, err
	case d == nil:
		return outcome{Decision: "not-ours"}, nil
	}
	out := outcome{Decision: "inject", Skipped: d.Skipped}
	if len(d.Names) == 0 {
		out.Decision = "environment"
	}
	for _, n := range d.Names {
		out.Devices = append(out.Devices, n.String())
	}
	for _, c := range d.Capabilities {
		out.Capabilities = append(out.Capabilities, string(c))
	}
	out.Adjustment, err = protojson.Marshal(d.Adjustment)
	return out, err
}
