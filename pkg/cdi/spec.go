package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Format is how a spec is written.
type Format string

// The formats that CDI knows, by file suffix.
const (
	JSON Format = "json"
	YAML Format = "yaml"
)

// EncodeSpec writes a spec with the least version that its content needs,
// after checking that the CDI library reads it back. most, when not empty, is
// the highest version that the reader knows ("0.5.0"): a spec that needs more
// is an error that says so.
func EncodeSpec(spec *specs.Spec, format Format, most string) ([]byte, error) {
	if _, _, err := SplitKind(spec.Kind); err != nil {
		return nil, err
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return nil, fmt.Errorf("spec of kind %q: %w", spec.Kind, err)
	}
	if most != "" && newerVersion(version, most) {
		return nil, fmt.Errorf("spec of kind %q needs CDI version %s, above the cap %s: leave out what needs it, such as a class with a dot", spec.Kind, version, most)
	}
	out := *spec
	out.Version = version
	data, err := json.MarshalIndent(&out, "", "  ")
	if err == nil && format == YAML {
		data, err = yaml.JSONToYAML(data)
	} else {
		data = append(data, '\n')
	}
	if err != nil {
		return nil, fmt.Errorf("encode spec of kind %q: %w", spec.Kind, err)
	}
	if _, err := DecodeSpec(data); err != nil {
		return nil, err
	}
	return data, nil
}

// DecodeSpec reads a spec as strictly as a runtime does: unknown fields, a
// version that does not allow the content, bad names and empty edits are
// errors.
func DecodeSpec(data []byte) (*specs.Spec, error) {
	raw, err := cdilib.ParseSpec(data)
	if err != nil {
		return nil, fmt.Errorf("CDI spec: %w", err)
	}
	if raw == nil || hasNull(raw) {
		return nil, errors.New("CDI spec: it is empty, or a list in it has an empty element")
	}
	if err := validate(raw); err != nil {
		return nil, fmt.Errorf("CDI spec of kind %q: %w", raw.Kind, err)
	}
	return raw, nil
}

// hasNull finds list elements that YAML and JSON allow to be null, and the CDI
// library does not expect to be.
func hasNull(spec *specs.Spec) bool {
	edits := []specs.ContainerEdits{spec.ContainerEdits}
	for i := range spec.Devices {
		edits = append(edits, spec.Devices[i].ContainerEdits)
	}
	return slices.ContainsFunc(edits, func(e specs.ContainerEdits) bool {
		return slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.NetDevices, nil) || slices.Contains(e.Hooks, nil) || slices.Contains(e.Mounts, nil)
	})
}

func validate(spec *specs.Spec) error {
	if err := specs.ValidateVersion(spec); err != nil {
		return err
	}
	if _, _, err := SplitKind(spec.Kind); err != nil {
		return err
	}
	if len(spec.Devices) == 0 {
		return errors.New("it has no device")
	}
	if err := (&cdilib.ContainerEdits{ContainerEdits: &spec.ContainerEdits}).Validate(); err != nil {
		return err
	}
	var names []string
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return err
		}
		if slices.Contains(names, d.Name) {
			return fmt.Errorf("device %q occurs twice", d.Name)
		}
		names = append(names, d.Name)
		if isEmpty(&d.ContainerEdits) {
			return fmt.Errorf("device %q has no edits", d.Name)
		}
		if err := (&cdilib.ContainerEdits{ContainerEdits: &d.ContainerEdits}).Validate(); err != nil {
			return fmt.Errorf("device %q: %w", d.Name, err)
		}
	}
	return nil
}

func isEmpty(e *specs.ContainerEdits) bool {
	return len(e.Env)+len(e.DeviceNodes)+len(e.NetDevices)+len(e.Hooks)+len(e.Mounts)+len(e.AdditionalGIDs) == 0 && e.IntelRdt == nil
}

// SplitKind checks a kind and returns its vendor and class.
func SplitKind(kind string) (vendor, class string, err error) {
	vendor, class = parser.ParseQualifier(kind)
	if vendor == "" {
		return "", "", fmt.Errorf("kind %q is not of the form vendor/class, such as nvidia.com/gpu", kind)
	}
	if err := parser.ValidateVendorName(vendor); err != nil {
		return "", "", fmt.Errorf("kind %q: %w", kind, err)
	}
	if err := parser.ValidateClassName(class); err != nil {
		return "", "", fmt.Errorf("kind %q: %w", kind, err)
	}
	return vendor, class, nil
}

// newerVersion compares CDI versions, whose parts have one digit each.
func newerVersion(a, b string) bool {
	return strings.TrimPrefix(a, "v") > strings.TrimPrefix(b, "v")
}
