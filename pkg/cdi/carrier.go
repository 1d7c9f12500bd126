package cdi

import (
	"encoding/json"
	"fmt"
	"os"
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

// carrierFile is the content of the file in which nri-gpu notes its choice.
type carrierFile struct {
	Carrier Carrier `json:"carrier"`
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
