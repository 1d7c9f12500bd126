package hostfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// MIGMinors maps a capability ("gpu0/gi1/access", "gpu0/gi1/ci0/access",
// "config", "monitor") to the N of /dev/nvidia-caps/nvidia-capN.
type MIGMinors map[string]int

// ReadMIGMinors reads /proc/driver/nvidia-caps/mig-minors; a file that is not
// there means a driver without MIG, and no capability.
func ReadMIGMinors(r roots.Roots) MIGMinors {
	data, err := os.ReadFile(r.Proc("driver", "nvidia-caps", "mig-minors"))
	if err != nil {
		return nil
	}
	return ParseMIGMinors(string(data))
}

// ParseMIGMinors reads lines of a capability and a number; lines of another
// form are skipped, since newer drivers may add some.
func ParseMIGMinors(text string) MIGMinors {
	m := MIGMinors{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 20); err == nil { // a Linux minor has 20 bits
			m[fields[0]] = int(n)
		}
	}
	return m
}

// Instance is the capability minor of a GPU instance, or of a compute instance
// when ci is not negative; gpu is the GPU's minor. What mig-minors does not
// list is looked up in /proc/driver/nvidia/capabilities; -1 when unknown.
func (m MIGMinors) Instance(r roots.Roots, gpu, gi, ci int) int {
	path := fmt.Sprintf("gi%d/access", gi)
	if ci >= 0 {
		path = fmt.Sprintf("gi%d/ci%d/access", gi, ci)
	}
	if n, ok := m[fmt.Sprintf("gpu%d/%s", gpu, path)]; ok {
		return n
	}
	data, err := os.ReadFile(r.Proc("driver", "nvidia", "capabilities", fmt.Sprintf("gpu%d", gpu), "mig", path))
	if err != nil {
		return -1
	}
	return parseDeviceFileMinor(string(data))
}

func parseDeviceFileMinor(text string) int {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "DeviceFileMinor:"); ok {
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 20); err == nil {
				return int(n)
			}
		}
	}
	return -1
}
