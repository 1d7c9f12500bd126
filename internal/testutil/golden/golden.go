// Package golden compares a text with a file in testdata.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// updateEnv, when set, rewrites the files instead (make golden).
const updateEnv = "NRI_GPU_UPDATE_GOLDEN"

// Equal fails unless the text is that of the file.
func Equal(tb testing.TB, file, text string) {
	tb.Helper()
	if os.Getenv(updateEnv) != "" {
		require.NoError(tb, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(tb, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(tb, err, "make golden writes it")
	require.Equal(tb, string(want), text, file)
}
