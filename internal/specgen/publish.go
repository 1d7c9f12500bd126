package specgen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// Publish writes the specs, the report and the inventory to the state
// directory, and then removes the kinds that are no more: who sees a device in
// the inventory finds its spec, when devices come and when they go. changed says
// whether any file was.
func (r *Result) Publish(dir state.Dir) (changed bool, err error) {
	var files []file
	for _, kind := range kinds() {
		if spec, ok := r.Specs[kind]; ok {
			data, err := cdi.EncodeSpec(spec, cdi.JSON, "")
			if err != nil {
				return false, err
			}
			files = append(files, file{specFile(dir, kind), data})
		}
	}
	for path, value := range map[string]any{dir.Report(): r.Report, dir.Inventory(): r.Inventory} {
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return false, fmt.Errorf("encode %q: %w", path, err)
		}
		files = append(files, file{path, append(data, '\n')})
	}
	for _, f := range files {
		c, err := state.WriteFile(f.path, f.data, 0o644)
		if err != nil {
			return changed, err
		}
		changed = changed || c
	}
	removed, err := r.removeStale(dir)
	return changed || removed, err
}

type file struct {
	path string
	data []byte
}

func specFile(dir state.Dir, kind string) string {
	return filepath.Join(dir.SpecDir(), cdi.SpecFileName(kind))
}

func (r *Result) removeStale(dir state.Dir) (removed bool, err error) {
	for _, kind := range kinds() {
		if _, ok := r.Specs[kind]; ok {
			continue
		}
		switch err := os.Remove(specFile(dir, kind)); {
		case err == nil:
			removed = true
		case !errors.Is(err, fs.ErrNotExist):
			return removed, fmt.Errorf("remove a spec that is no more: %w", err)
		}
	}
	return removed, nil
}

func kinds() []string {
	return []string{cdi.KindGPU, cdi.KindDriver, cdi.KindGDS, cdi.KindGDRCopy, cdi.KindMOFED, cdi.KindNVSwitch, cdi.KindIMEX}
}

// Join adds edits to a card's own, of which some mounts are required.
func (r *Result) Join(uuid string, edits specs.ContainerEdits, required []string) {
	spec := r.Specs[cdi.KindGPU]
	if spec == nil {
		return
	}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		if d.Name != cdi.DeviceName(uuid) {
			continue
		}
		d.ContainerEdits = cdi.JoinEdits(d.ContainerEdits, edits)
		d.Annotations = map[string]string{cdi.RequiredAnnotation: strings.Join(required, ":")}
	}
}
