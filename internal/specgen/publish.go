package specgen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Publish writes the specs, the report and, last, the inventory to the state
// directory: who sees a device in the inventory finds its spec. A kind that is
// no more is removed. changed says whether any file was.
func (r *Result) Publish(dir state.Dir) (changed bool, err error) {
	for _, kind := range kinds() {
		c, err := r.publishKind(dir, kind)
		if err != nil {
			return changed, err
		}
		changed = changed || c
	}
	for _, f := range []struct {
		path  string
		value any
	}{{dir.Report(), r.Report}, {dir.Inventory(), r.Inventory}} {
		data, err := json.MarshalIndent(f.value, "", "  ")
		if err != nil {
			return changed, fmt.Errorf("encode %q: %w", f.path, err)
		}
		c, err := state.WriteFile(f.path, append(data, '\n'), 0o644)
		if err != nil {
			return changed, err
		}
		changed = changed || c
	}
	return changed, nil
}

func kinds() []string {
	return []string{cdi.KindGPU, cdi.KindDriver, cdi.KindGDS, cdi.KindGDRCopy, cdi.KindMOFED, cdi.KindNVSwitch, cdi.KindIMEX}
}

func (r *Result) publishKind(dir state.Dir, kind string) (bool, error) {
	path := filepath.Join(dir.SpecDir(), cdi.SpecFileName(kind))
	spec, ok := r.Specs[kind]
	if !ok {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	data, err := cdi.EncodeSpec(spec, cdi.JSON, "")
	if err != nil {
		return false, err
	}
	return state.WriteFile(path, data, 0o644)
}
