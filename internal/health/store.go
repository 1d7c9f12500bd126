package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/state"
)

// Fault is why a device must not be used until something was done.
type Fault struct {
	// Device is the UUID of the card or MIG device.
	Device string `json:"device"`
	// XID is the error; 0 for one that counters told of.
	XID    uint64 `json:"xid,omitempty"`
	Action Action `json:"action"`
	// Reason is a sentence for people, without the next step.
	Reason string `json:"reason"`
	// Since is when it was first seen, and Count how often since.
	Since time.Time `json:"since"`
	Count int       `json:"count"`
	// Evidence is how the card was then.
	Evidence Evidence `json:"evidence"`
}

func (f *Fault) text() string { return fmt.Sprintf("%s; %s", f.Reason, f.Action.next()) }

// Cordon is an operator's word that a card must not be used.
type Cordon struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Cordons is the operator's word about cards and MIG devices, by UUID.
type Cordons struct {
	Cordoned map[string]Cordon `json:"cordoned"`
	// Cleared has a mark for each device that somebody has seen to. Faults of
	// the device that are older than the mark are void; a mark counts once.
	Cleared map[string]string `json:"cleared,omitempty"`
}

// ReadCordons reads the file that gpuctl writes; one that is not there means
// that nothing is cordoned.
func ReadCordons(path string) (Cordons, error) {
	out := Cordons{}
	err := readJSON(path, &out)
	if out.Cordoned == nil {
		out.Cordoned = map[string]Cordon{}
	}
	if out.Cleared == nil {
		out.Cleared = map[string]string{}
	}
	return out, err
}

// WriteCordons replaces the file.
func WriteCordons(path string, c Cordons) error { return writeJSON(path, c) }

// memory is the content of the file that outlives this process.
type memory struct {
	Faults []Fault `json:"faults"`
	// Cleared are the marks that were heeded.
	Cleared map[string]string `json:"cleared"`
}

// ReadFaults reads the faults that a Monitor has written down.
func ReadFaults(path string) ([]Fault, error) {
	mem, err := readMemory(path)
	return mem.Faults, err
}

func readMemory(path string) (memory, error) {
	mem := memory{}
	err := readJSON(path, &mem)
	if mem.Cleared == nil {
		mem.Cleared = map[string]string{}
	}
	return mem, err
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	return nil
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %q: %w", path, err)
	}
	_, err = state.WriteFile(path, append(data, '\n'), 0o644)
	return err
}
