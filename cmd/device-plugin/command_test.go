package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/cli"
)

// command runs a command line that ends before anything starts.
func command(t *testing.T, env map[string]string, args ...string) error {
	t.Helper()
	cmd := newCommand(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	cmd.SetArgs(args)
	cmd.SetOut(new(strings.Builder))
	cmd.SetErr(new(strings.Builder))
	return cmd.ExecuteContext(t.Context())
}

func TestBadSettingsEndWithStatusTwoBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"an unknown flag":            {args: []string{"--colour=green"}, want: "--help"},
		"an argument":                {args: []string{"start"}, want: "start"},
		"a wrong type":               {args: []string{"--discover-interval=soon"}, want: "discover-interval"},
		"an interval that is no one": {args: []string{"--discover-interval=0s"}, want: "discover-interval"},
		"a retry that is too often":  {env: map[string]string{"NRI_GPU_RETRY_INTERVAL": "1ms"}, want: "NRI_GPU_RETRY_INTERVAL"},
		"a relative inventory":       {args: []string{"--inventory=gpus.json"}, want: "inventory"},
		"an empty resource name":     {args: []string{"--resource-name="}, want: "resource-name"},
		"a resource of Kubernetes":   {args: []string{"--resource-name=kubernetes.io/gpu"}, want: "kubernetes.io/gpu"},
		"a file that is not there":   {args: []string{"--config=/does/not/exist"}, want: "/does/not/exist"},
		"an unknown injection":       {env: map[string]string{"NRI_GPU_INJECTION": "magic"}, want: "magic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			err := command(t, c.env, append(c.args, "--state-dir="+filepath.Join(dir, "s"), "--data-dir="+filepath.Join(dir, "l"))...)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, 2, cli.Status(err), "%v", err)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
}

func TestFailuresOfTheMachineEndWithStatusOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s"), nil, 0o600))
	err := command(t, nil, "--state-dir="+filepath.Join(dir, "s"), "--data-dir="+dir, "--listen-address=")
	require.Error(t, err)
	require.Equal(t, 1, cli.Status(err), "%v", err)
}

func TestABrokenKeyIsAnErrorAtStartThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	require.NoError(t, os.WriteFile(b.cfg.Data().Key(), []byte("{"), 0o600))
	err := run(t.Context(), b.cfg, quiet())
	require.ErrorContains(t, err, b.cfg.Data().Key())
	require.ErrorContains(t, err, "remove")
}

func TestHelpNamesEveryFlag(t *testing.T) {
	t.Parallel()
	cmd := newCommand(os.LookupEnv)
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	for _, flag := range []string{"--inventory", "--discover-interval", "--kubelet-dir", "--config", "--listen-address", defaultListen} {
		require.Contains(t, out.String(), flag)
	}
}
