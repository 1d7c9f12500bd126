package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/devnodes"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvmlcmd"
	"github.com/nri-gpu/nri-gpu/internal/discovery/static"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

type generation struct {
	config.Paths
	kind, output, format, most, inventory string
	capabilities, names, libraryDirs      []string
	createNodes, noAll, report            bool
	driverMounts                          config.DriverMounts
}

func newGenerate() *cobra.Command {
	var g generation
	cmd := &cobra.Command{
		Use: "generate", Short: "Write a CDI spec of this node's GPUs, for podman, docker, nerdctl and others", Args: cobra.NoArgs,
		Long: "Write a CDI spec of this node's GPUs. What was looked for and not found is in the report of --report.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := load(cmd); err != nil {
				return err
			}
			if err := config.Validate(cmd.Flags(), config.All{&g.Paths, &g.driverMounts}); err != nil {
				return err
			}
			if err := g.validate(); err != nil {
				return err
			}
			return g.run(cmd)
		},
	}
	f := cmd.Flags()
	config.AddFileFlag(f)
	g.AddFlags(f)
	g.driverMounts.AddFlag(f, config.MountsByRuntime)
	f.StringVar(&g.kind, "kind", "nvidia.com/gpu", "kind of the devices, vendor/class")
	f.StringSliceVar(&g.capabilities, "capabilities", []string{cdi.DeviceAll}, "driver capabilities that every device brings")
	f.StringVar(&g.output, "output", "-", "file to write; - prints it")
	f.StringVar(&g.format, "format", "", "json or yaml; by default what the output's suffix says, else yaml")
	f.StringVar(&g.most, "cdi-version", "", "highest CDI version that the reader knows, such as 0.5.0 for podman 4.3")
	f.StringSliceVar(&g.names, "device-names", []string{string(specgen.ByIndex), string(specgen.ByUUID)}, "how devices are named: index, uuid, type-index")
	f.StringVar(&g.inventory, "inventory", "", "take the GPUs from a JSON file and not from NVML")
	f.StringSliceVar(&g.libraryDirs, "library-dirs", nil, "directories in the driver root to look for libraries first")
	f.BoolVar(&g.createNodes, "create-device-nodes", true, "make device nodes that are missing")
	f.BoolVar(&g.noAll, "no-all-device", false, "leave out the device all")
	f.BoolVar(&g.report, "report", false, "print what was looked for instead of the spec")
	return cmd
}

func (g *generation) validate() error {
	if _, _, err := cdi.SplitKind(g.kind); err != nil {
		return cli.Usage("--kind: %w", err)
	}
	if _, err := cdi.ParseCapabilities(strings.Join(g.capabilities, ",")); err != nil {
		return cli.Usage("--capabilities: %w", err)
	}
	for _, n := range g.names {
		if !slices.Contains([]specgen.Naming{specgen.ByIndex, specgen.ByUUID, specgen.ByTypeIndex}, specgen.Naming(n)) {
			return cli.Usage("--device-names: %q is not index, uuid or type-index", n)
		}
	}
	if len(g.names) == 0 {
		return cli.Usage("--device-names: at least one is needed")
	}
	if g.format == "" {
		g.format = string(cdi.YAML)
		if strings.HasSuffix(g.output, ".json") {
			g.format = string(cdi.JSON)
		}
	}
	if g.format != string(cdi.JSON) && g.format != string(cdi.YAML) {
		return cli.Usage("--format: %q is neither json nor yaml", g.format)
	}
	if g.output != "-" && !strings.HasSuffix(g.output, ".json") && !strings.HasSuffix(g.output, ".yaml") {
		return cli.Usage("--output: %q ends in neither .json nor .yaml, and no runtime would read it", g.output)
	}
	return nil
}

func (g *generation) run(cmd *cobra.Command) error {
	inv, err := g.discover(cmd.Context())
	if err != nil {
		return err
	}
	if g.createNodes && inv.Driver.State == device.DriverReady {
		for _, p := range devnodes.Ensure(g.Roots(), inv).Problems {
			fmt.Fprintf(cmd.ErrOrStderr(), "gpuctl: %s: %s\n", p.Node, p.Why)
		}
	}
	res, err := specgen.Generate(cmd.Context(), inv, specgen.Config{
		Roots: g.Roots(), Mapping: g.Mapping(), HookPath: g.HookPath, LibraryDirs: g.libraryDirs,
	})
	if err != nil {
		return err
	}
	if g.report {
		return printJSON(cmd.OutOrStdout(), res.Report)
	}
	return g.writeSpec(cmd, res)
}

func (g *generation) writeSpec(cmd *cobra.Command, res *specgen.Result) error {
	caps, err := cdi.ParseCapabilities(strings.Join(g.capabilities, ","))
	if err != nil {
		return err
	}
	flat := specgen.Flattening{Kind: g.kind, Capabilities: caps, NoAll: g.noAll, HookMounts: g.driverMounts == config.MountsByHook}
	for _, n := range g.names {
		flat.Names = append(flat.Names, specgen.Naming(n))
	}
	spec, err := res.Flatten(flat)
	if err != nil {
		return err
	}
	for i := range res.Inventory.GPUs {
		if gpu := &res.Inventory.GPUs[i]; !gpu.Health.Healthy {
			fmt.Fprintf(cmd.ErrOrStderr(), "gpuctl: left out %s: %s\n", gpu.UUID, gpu.Health.Reason)
		}
	}
	data, err := cdi.EncodeSpec(spec, cdi.Format(g.format), g.most)
	if err != nil {
		return err
	}
	if g.output != "-" {
		if err := conflict(g.output, spec); err != nil {
			return err
		}
	}
	return write(cmd.OutOrStdout(), g.output, data)
}

func (g *generation) discover(ctx context.Context) (device.Inventory, error) {
	if g.inventory != "" {
		return static.New(g.inventory).Discover(ctx), nil
	}
	d, err := nvmlcmd.Discoverer(g.Roots(), g.NVMLLibrary)
	if err != nil {
		return device.Inventory{}, err
	}
	defer d.Close()
	return d.Discover(ctx), nil
}
