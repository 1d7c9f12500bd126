package features

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/state"
)

// DefaultFile is where the NFD worker looks for features, in a directory that
// its pod shares with the host.
const DefaultFile = "/etc/kubernetes/node-feature-discovery/features.d/nri-gpu"

// fileVerify is the time after which a file is looked at again: it costs
// nothing, and an administrator may have removed it.
const fileVerify = 10 * time.Second

// File is the Sink that writes a feature file for the NFD worker, of which
// NFD's master makes node labels. The file stays when we end, so that the
// labels do; whoever uninstalls removes it.
func File(path string) Sink {
	return Sink{
		Name:   "file",
		Verify: fileVerify,
		Write: func(_ context.Context, labels map[string]string) (bool, error) {
			changed, err := state.WriteFile(path, []byte(Encode(labels)), 0o644)
			if err != nil {
				return false, fmt.Errorf("node labels for NFD: %w; make the directory writable or choose another file", err)
			}
			return changed, nil
		},
	}
}

// Encode is the content of a feature file: key=value, sorted.
func Encode(labels map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%s\n", key, labels[key])
	}
	return b.String()
}
