package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

// figures are what a run found, in milliseconds.
type figures struct {
	Rounds  int                `json:"rounds"`
	PlainMS float64            `json:"plain_ms"`
	AddedMS map[string]float64 `json:"added_ms"`
	// Ratio is of ours to the peer's.
	Ratio   map[string]float64 `json:"ratio"`
	Control estimate           `json:"control"`
	// Intervals are those of AddedMS.
	Intervals map[string]estimate `json:"intervals"`
}

// maxControl is how far two plain containers may differ in a run that counts.
const maxControl = 1.0

func figuresOf(t times, random *rand.Rand) *figures {
	f := &figures{Rounds: len(t[plain]), PlainMS: median(t[plain]), AddedMS: map[string]float64{}, Ratio: map[string]float64{}, Intervals: map[string]estimate{}}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		e := estimateOf(differences(t[name], t[plain]), random)
		switch name {
		case plain:
		case control:
			f.Control = e
		default:
			f.AddedMS[name], f.Intervals[name] = e.Median, e
		}
	}
	for _, name := range []string{"nri", "nri_all", "cdi"} {
		f.Ratio[name] = f.AddedMS[name] / f.AddedMS[peer]
	}
	return f
}

// void is an error when the machine was too restless.
func (f *figures) void() error {
	if math.Abs(f.Control.Median) <= maxControl {
		return nil
	}
	return fmt.Errorf("the run is void: two plain containers differ by %.2f ms in the median, and more than %.0f ms says that the machine was not quiet; run it again beside less", f.Control.Median, maxControl)
}

func (f *figures) table(all []mode) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds; a plain container takes %.1f ms (median)\n\n", f.Rounds, f.PlainMS)
	fmt.Fprintf(&b, "%-12s %9s  %-19s %9s  %s\n", "mode", "added ms", "95 % interval", "of peer's", "what")
	for _, m := range all {
		e, ratio := f.Intervals[m.name], ""
		switch m.name {
		case plain:
			continue
		case control:
			e = f.Control
		}
		if r, ok := f.Ratio[m.name]; ok {
			ratio = fmt.Sprintf("%.3f", r)
		}
		fmt.Fprintf(&b, "%-12s %+9.2f  [%+7.2f, %+7.2f]  %9s  %s\n", m.name, e.Median, e.Low, e.High, ratio, m.what)
	}
	return b.String()
}

func (f *figures) write(file string) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
