package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

func newCDI() *cobra.Command {
	cmd := &cobra.Command{Use: "cdi", Short: "Make, list and check CDI specs"}
	cmd.AddCommand(newGenerate(), newList(), newValidate())
	return cmd
}

// load reads a command's settings, as the daemons do.
func load(cmd *cobra.Command) error { return config.Load(cmd.Flags(), os.LookupEnv) }

func newList() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use: "list", Short: "List the devices of the CDI specs on this node", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := load(cmd); err != nil {
				return err
			}
			return list(cmd.OutOrStdout(), dirs)
		},
	}
	config.AddFileFlag(cmd.Flags())
	cmd.Flags().StringSliceVar(&dirs, "spec-dir", []string{"/etc/cdi", "/var/run/cdi"}, "directories with CDI specs")
	return cmd
}

// list prints every qualified name; a file that cannot be read is an error
// after all others were listed.
func list(out io.Writer, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		files, err := specFiles(dir)
		if err != nil {
			errs = append(errs, err)
		}
		for _, f := range files {
			spec, err := readSpec(f)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			for i := range spec.Devices {
				if _, err := fmt.Fprintf(out, "%s=%s\n", spec.Kind, spec.Devices[i].Name); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(errs...)
}

// specFiles are the files that a runtime reads: those that end in .json or
// .yaml, and no others.
func specFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read spec directory: %w", err)
	}
	var out []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".yaml") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

func readSpec(path string) (*specs.Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	spec, err := cdi.DecodeSpec(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return spec, nil
}

func newValidate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate FILE...", Short: "Check CDI specs, and that the files they name are on this node", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, f := range args {
				if err := validate(f); err != nil {
					errs = append(errs, err)
				} else if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", f); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
	return cmd
}

// validate checks a spec and what it names.
func validate(path string) error {
	spec, err := readSpec(path)
	if err != nil {
		return err
	}
	var errs []error
	missing := func(what, file string) {
		if _, err := os.Stat(file); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", path, what, err))
		}
	}
	edits := []specs.ContainerEdits{spec.ContainerEdits}
	for i := range spec.Devices {
		edits = append(edits, spec.Devices[i].ContainerEdits)
	}
	for _, e := range edits {
		for _, n := range e.DeviceNodes {
			missing("device node", cmp.Or(n.HostPath, n.Path))
		}
		for _, m := range e.Mounts {
			missing("mount", m.HostPath)
		}
		for _, h := range e.Hooks {
			missing("hook", h.Path)
		}
	}
	return errors.Join(errs...)
}

// conflict names a spec in the directory of the output that has a device of the
// same name: of two such files a runtime uses neither.
func conflict(output string, spec *specs.Spec) error {
	files, err := specFiles(filepath.Dir(output))
	if err != nil {
		return err
	}
	for _, f := range files {
		other, err := readSpec(f)
		if err != nil || f == filepath.Clean(output) || other.Kind != spec.Kind {
			continue
		}
		for i := range spec.Devices {
			name := spec.Devices[i].Name
			if slices.ContainsFunc(other.Devices, func(d specs.Device) bool { return d.Name == name }) {
				return fmt.Errorf("%s has %s=%s too, and of two such specs a runtime uses neither: remove it, or write over it with --output=%s", f, spec.Kind, name, f)
			}
		}
	}
	return nil
}

// write writes a spec to a file, or prints it.
func write(out io.Writer, output string, data []byte) error {
	if output == "" || output == "-" {
		_, err := out.Write(data)
		return err
	}
	_, err := state.WriteFile(output, data, 0o644)
	return err
}

// printJSON prints a value for people and programs alike.
func printJSON(out io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.TrimSpace(string(data)))
	return err
}
