package cdi

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Carrier is how the names of devices travel from the device plugin to nri-gpu.
type Carrier string

// The carriers.
const (
	// CarrierCDI is the typed list of the CRI, which a runtime passes on to
	// NRI plugins (containerd 2.3 and later).
	CarrierCDI Carrier = "cdi"
	// CarrierAnnotation is a signed container annotation.
	CarrierAnnotation Carrier = "annotation"
)

// Runtime is what a container runtime says of itself when it configures an NRI
// plugin.
type Runtime struct {
	// Name is "containerd" or "cri-o".
	Name string `json:"name"`
	// Version is the runtime's, with or without a leading "v".
	Version string `json:"version"`
}

// ChooseCarrier returns the carrier for a runtime. The error says that the
// runtime is too old: before containerd 1.7.30 and CRI-O 1.34 a plugin cannot
// take the guard away, or the runtime drops what the plugin answers.
func ChooseCarrier(r Runtime) (Carrier, error) {
	major, minor, patch, ok := parseVersion(r.Version)
	if !ok {
		// A build without a version, such as a distribution's snapshot: the
		// annotation works on everything that is supported.
		return CarrierAnnotation, nil
	}
	at := func(v ...int) bool { return atLeast([]int{major, minor, patch}, v) }
	switch {
	case r.Name == "containerd" && at(2, 3, 0):
		return CarrierCDI, nil
	case r.Name == "containerd" && at(1, 7, 30):
		return CarrierAnnotation, nil
	case r.Name == "containerd":
		return "", fmt.Errorf("containerd %s is too old: 1.7.30 or newer is needed; upgrade containerd", r.Version)
	case r.Name == "cri-o" && !at(1, 34, 0):
		return "", fmt.Errorf("CRI-O %s is too old: 1.34 or newer is needed; upgrade CRI-O", r.Version)
	}
	return CarrierAnnotation, nil
}

func atLeast(have, want []int) bool {
	for i := range want {
		if have[i] != want[i] {
			return have[i] > want[i]
		}
	}
	return true
}

// parseVersion reads "v2.4.2", "1.7.30-rc.0+x" and the like.
func parseVersion(s string) (major, minor, patch int, ok bool) {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "-")
	s, _, _ = strings.Cut(s, "+")
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return 0, 0, 0, false
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return 0, 0, 0, false
		}
		n[i] = int(v)
	}
	return n[0], n[1], n[2], true
}

// carrierFile is the content of the file in which nri-gpu notes its choice.
type carrierFile struct {
	Carrier Carrier `json:"carrier"`
	// Runtime is what the choice was made for.
	Runtime Runtime `json:"runtime"`
}

// EncodeCarrier is the content of the file in which nri-gpu notes its choice.
func EncodeCarrier(c Carrier, r Runtime) ([]byte, error) {
	data, err := json.MarshalIndent(carrierFile{Carrier: c, Runtime: r}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode carrier: %w", err)
	}
	return append(data, '\n'), nil
}

// ReadCarrier reads the carrier that nri-gpu chose. The error wraps
// fs.ErrNotExist as long as it has chosen none.
func ReadCarrier(path string) (Carrier, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read carrier: %w", err)
	}
	var f carrierFile
	if err := json.Unmarshal(data, &f); err != nil {
		return "", fmt.Errorf("read carrier from %q: %w", path, err)
	}
	if f.Carrier != CarrierCDI && f.Carrier != CarrierAnnotation {
		return "", fmt.Errorf("read carrier from %q: %q is neither %q nor %q", path, f.Carrier, CarrierCDI, CarrierAnnotation)
	}
	return f.Carrier, nil
}
