package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

func noEnv(string) (string, bool) { return "", false }

// load parses a command line, an environment and a file the way a daemon does.
func load(t *testing.T, args []string, env map[string]string, file string) (*config.Daemon, error) {
	t.Helper()
	var d config.Daemon
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	d.AddFlags(fs, "127.0.0.1:1")
	config.AddFileFlag(fs)
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	require.NoError(t, fs.Parse(args))
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	if err := config.Load(fs, lookup); err != nil {
		return &d, err
	}
	return &d, config.Validate(fs, &d)
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	d, err := load(t, nil, nil, "")
	require.NoError(t, err)
	require.Equal(t, "nvidia.com/gpu", d.ResourceName)
	require.Equal(t, "/var/run/cdi", d.CDIDir)
	require.Equal(t, cdi.AllCapabilities(), d.Capabilities())
}

func TestAFlagBeatsTheEnvironmentAndTheEnvironmentBeatsTheFile(t *testing.T) {
	t.Parallel()
	file := "state-dir: /file\ndata-dir: /file\ncdi-dir: /file\nallowed-capabilities: [compute, video]\n"
	d, err := load(t, []string{"--state-dir", "/flag"},
		map[string]string{"NRI_GPU_STATE_DIR": "/env", "NRI_GPU_DATA_DIR": "/env"}, file)
	require.NoError(t, err)
	require.Equal(t, "/flag", d.StateDir)
	require.Equal(t, "/env", d.DataDir)
	require.Equal(t, "/file", d.CDIDir)
	require.Equal(t, []cdi.Capability{cdi.Compute, cdi.Video}, d.Capabilities())
}

func TestBadSettingsNameTheSourceTheKeyAndTheRule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		file string
		want []string
	}{
		"an unknown key in the file":          {file: "state-dri: /x\n", want: []string{"config.yaml", "state-dri", "unknown key", "state-dir"}},
		"a list where one value belongs":      {file: "state-dir: [/a, /b]\n", want: []string{"config.yaml", "state-dir", "one value"}},
		"a mapping as a value":                {file: "state-dir: {a: b}\n", want: []string{"config.yaml", "state-dir", "plain value"}},
		"a file that is a list":               {file: "- a\n", want: []string{"config.yaml", "mapping"}},
		"a file that is not YAML":             {file: "a: [\n", want: []string{"config.yaml"}},
		"a key that is set twice":             {file: "state-dir: /a\nstate-dir: /b\n", want: []string{"config.yaml"}},
		"the file naming another file":        {file: "config: /x\n", want: []string{"config", "unknown key"}},
		"an empty resource name":              {args: []string{"--resource-name="}, want: []string{"command line: --resource-name", "must not be empty"}},
		"an empty resource name in the file":  {file: "resource-name: ''\n", want: []string{"config.yaml: resource-name", "must not be empty"}},
		"a resource name without a domain":    {args: []string{"--resource-name=gpu"}, want: []string{"resource-name", "no domain"}},
		"a resource name of Kubernetes":       {args: []string{"--resource-name=kubernetes.io/gpu"}, want: []string{"resource-name", "own domain"}},
		"a resource name with a bad letter":   {args: []string{"--resource-name=nvidia.com/g pu"}, want: []string{"resource-name", "not a name"}},
		"a resource name for quotas":          {args: []string{"--resource-name=requests.nvidia.com/gpu"}, want: []string{"resource-name", "requests."}},
		"a relative directory":                {env: map[string]string{"NRI_GPU_STATE_DIR": "x"}, want: []string{"environment: NRI_GPU_STATE_DIR", "absolute"}},
		"an unknown way of injecting":         {args: []string{"--injection=magic"}, want: []string{"injection", "magic"}},
		"an unknown capability":               {args: []string{"--allowed-capabilities=compute,telepathy"}, want: []string{"allowed-capabilities", "telepathy"}},
		"an unknown log level":                {args: []string{"--log-level=loud"}, want: []string{"log-level", "loud"}},
		"an unknown log format":               {args: []string{"--log-format=xml"}, want: []string{"log-format", "xml"}},
		"a host path mapping with one side":   {args: []string{"--host-path-map=/a"}, want: []string{"host-path-map", "/a"}},
		"a configuration file that is absent": {args: []string{"--config=/does/not/exist"}, want: []string{"--config", "/does/not/exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.args, c.env, c.file)
			require.Error(t, err)
			require.True(t, config.IsError(err))
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestAWrongTypeInTheFileNamesTheType(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.Duration("interval", 0, "")
	config.AddFileFlag(fs)
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("interval: soon\n"), 0o600))
	require.NoError(t, fs.Parse([]string{"--config", path}))
	err := config.Load(fs, noEnv)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, `"soon" is not a valid duration: must be a duration like`)
}

func FuzzFile(f *testing.F) {
	f.Add("state-dir: /x\nallowed-capabilities: [compute]\n")
	f.Add("a: &x [1]\nb: *x\n")
	f.Add("? {a: b}\n: c\n")
	f.Fuzz(func(t *testing.T, content string) {
		var d config.Daemon
		fs := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		d.AddFlags(fs, "")
		config.AddFileFlag(fs)
		path := filepath.Join(t.TempDir(), "c.yaml")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.NoError(t, fs.Parse([]string{"--config", path}))
		if err := config.Load(fs, noEnv); err != nil {
			require.True(t, config.IsError(err), "%v", err)
		}
	})
}
