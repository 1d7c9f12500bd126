package hostfs

import (
	"bytes"
	"io"
	"os"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Offsets and identifiers of a PCI function's configuration space (PCI Local
// Bus Specification 3.0, chapter 6).
const (
	pciStatus           = 0x06
	pciHasCapabilities  = 0x10 // bit of the status
	pciCapabilityList   = 0x34
	pciHeaderEnd        = 0x40 // an unprivileged reader gets no more
	pciConfigEnd        = 0x100
	pciCapabilityVendor = 0x09
)

// VGPU tells whether a PCI device is a GPU that a hypervisor made: its
// configuration space then has a vendor specific capability with the signature
// "VF" and a record of the hypervisor's driver. It returns nil when the
// configuration space cannot be read, or only as far as anybody may.
func VGPU(r roots.Roots, busID string) *device.VGPU {
	if busID == "" {
		return nil
	}
	f, err := os.Open(r.Sys("bus", "pci", "devices", busID, "config"))
	if err != nil {
		return nil
	}
	defer f.Close()
	// The kernel asks the device for every byte that is read; the extended
	// part beyond has other capabilities.
	config, err := io.ReadAll(io.LimitReader(f, pciConfigEnd))
	if err != nil {
		return nil
	}
	return parseVGPU(config)
}

func parseVGPU(config []byte) *device.VGPU {
	if len(config) < pciHeaderEnd {
		return nil
	}
	if config[pciStatus]&pciHasCapabilities == 0 {
		return &device.VGPU{}
	}
	at := int(config[pciCapabilityList]) &^ 3
	// Each capability is a multiple of four bytes, so that a list without a
	// loop has no more than this many.
	for range pciConfigEnd / 4 {
		if at == 0 {
			return &device.VGPU{}
		}
		if at+3 > len(config) {
			return nil
		}
		if config[at] == pciCapabilityVendor {
			if end := at + int(config[at+2]); end <= len(config) {
				if v := vgpuCapability(config[at:end]); v.Present {
					return v
				}
			}
		}
		at = int(config[at+1]) &^ 3
	}
	return nil
}

// vgpuCapability reads records of an identifier, a length that counts the
// record's head, and data. Record 0 has the hypervisor's driver version and
// branch, ten bytes each.
func vgpuCapability(c []byte) *device.VGPU {
	const head, field = 2, 10
	if len(c) < 5 || c[3] != 'V' || c[4] != 'F' {
		return &device.VGPU{}
	}
	v := &device.VGPU{Present: true}
	for records := c[5:]; len(records) >= head; {
		id, length := records[0], int(records[1])
		if id == 0 {
			if data := records[head:]; len(data) >= 2*field {
				v.HostDriverVersion = text(data[:field])
				v.HostDriverBranch = text(data[field : 2*field])
			}
			break
		}
		if length < head || length > len(records) {
			break // a record that leads nowhere
		}
		records = records[length:]
	}
	return v
}

// text is a field that is filled with zeros.
func text(field []byte) string {
	out, _, _ := bytes.Cut(field, []byte{0})
	return string(out)
}
