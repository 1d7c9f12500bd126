package driverroot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestResolveNeverLeavesTheTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"a/b", "opt", "usr/lib"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "opt/file"), nil, 0o644))
	for link, target := range map[string]string{
		"absolute": "/opt/file", "up": "../../../../opt/file", "a/b/relative": "../../opt/file", "dir": "/opt",
		"loop": "loop", "ping": "pong", "pong": "ping", "dangling": "/nowhere", "lib": "usr/lib",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	for in, want := range map[string]string{
		"/absolute": "/opt/file", "/up": "/opt/file", "/a/b/relative": "/opt/file", "/dir/file": "/opt/file", "dir/../opt/file": "/opt/file",
		"/lib": "/usr/lib", "/": "/", "/..": "/", "/../../opt": "/opt",
	} {
		got, err := tree(dir).resolve(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"/loop", "/ping/x", "/dangling", "/absolute/below-a-file"} {
		_, err := tree(dir).resolve(in)
		require.Error(t, err, in)
	}
}

func TestNewerComparesNumbers(t *testing.T) {
	t.Parallel()
	require.True(t, newer("550.10", "550.9"))
	require.True(t, newer("550.1.1", "535.309.01"))
	require.True(t, newer("550.1.1", "550.1"))
	require.False(t, newer("535.9.9", "550.1.1"))
	for s, want := range map[string]bool{"535.309.01": true, "550.1": true, "1": false, "1.a": false, "1.2.3.4": false, "": false} {
		require.Equal(t, want, isVersion(s), s)
	}
}

func TestCapabilitiesOfAnUnknownLibraryIncludeCompute(t *testing.T) {
	t.Parallel()
	require.Equal(t, "compute", string(capabilitiesOf("nvidia-brandnew")[0]))
	require.Equal(t, "utility", string(capabilitiesOf("nvidia-ml")[0]))
	require.True(t, Required("/usr/lib/x86_64-linux-gnu/libcuda.so.535.1"))
	require.False(t, Required("/usr/lib/x86_64-linux-gnu/libnvidia-ngx.so.535.1"))
	require.False(t, Required("/usr/bin/nvidia-smi"))
}

func FuzzResolve(f *testing.F) {
	f.Add("a", "../../b", "/a/c")
	f.Add("x", "/", "x/x/x")
	f.Fuzz(func(t *testing.T, name, target, in string) {
		if strings.ContainsAny(name+target, "\x00") || name == "" || target == "" || strings.Contains(name, "/") {
			return
		}
		dir := t.TempDir()
		if os.Symlink(target, filepath.Join(dir, name)) != nil {
			return
		}
		got, err := tree(dir).resolve(in)
		if err == nil {
			require.True(t, strings.HasPrefix(got, "/") && filepath.Clean(got) == got, got)
		}
	})
}
