package cdi

import (
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// Name is a qualified name in its parts.
type Name struct {
	// Kind is vendor/class.
	Kind string
	// Device is the name within the kind.
	Device string
}

// String returns the qualified name.
func (n Name) String() string { return n.Kind + "=" + n.Device }

// maxName bounds a qualified name, in bytes; the longest of ours has some 90.
const maxName = 256

// ParseName reads a qualified name, by CDI's rules for each part.
func ParseName(s string) (Name, error) {
	if len(s) > maxName {
		return Name{}, fmt.Errorf("device name of %d bytes is longer than %d", len(s), maxName)
	}
	vendor, class, device, err := parser.ParseQualifiedName(s)
	if err != nil {
		return Name{}, fmt.Errorf("device name %q is not of the form vendor/class=name: %w", s, err)
	}
	return Name{Kind: vendor + "/" + class, Device: device}, nil
}

// IsOurs tells whether a string claims to be a name of our vendor, well formed
// or not.
func IsOurs(s string) bool { return strings.HasPrefix(s, Vendor+"/") }
