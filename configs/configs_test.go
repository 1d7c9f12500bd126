package configs_test

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/nvidiaconfig"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

// checks says what holds a file to account, by a pattern of its path.
func checks() map[string]func(*testing.T, string) {
	return map[string]func(*testing.T, string){
		"containerd/config-v2.toml": containerdV2,
		"containerd/config-v3.toml": containerdV3,
		"crio/*.conf":               crio,
		"pods/*.yaml":               pod,
		"cdi/*.json":                spec,
		"systemd/*.service":         unit,
		"sharing/*.yaml":            sharing,
		"*.yaml":                    settings,
	}
}

// sharing is read as the device plugin reads it, with nothing ignored.
func sharing(t *testing.T, path string) {
	t.Helper()
	f, err := nvidiaconfig.Decode(read(t, path))
	require.NoError(t, err)
	cfg, ignored, err := f.Apply(resources.Config{Whole: "nvidia.com/gpu", MIG: resources.MIGNone})
	require.NoError(t, err)
	require.Empty(t, ignored)
	require.NotEmpty(t, cfg.Shares)
}

func TestEveryFileIsHeldToAccount(t *testing.T) {
	t.Parallel()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".go" {
			return err
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			for pattern, check := range checks() {
				if ok, err := filepath.Match(pattern, path); err == nil && ok {
					check(t, path)
					return
				}
			}
			require.Fail(t, "no check knows this file")
		})
		return nil
	}))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func strictTOML(t *testing.T, path string, into any) {
	t.Helper()
	require.NoError(t, toml.NewDecoder(bytes.NewReader(read(t, path))).DisallowUnknownFields().Decode(into))
}

// nri are the keys of containerd's NRI plugin (its pkg/nri/config.go).
type nri struct {
	Disable             bool   `toml:"disable"`
	DisableConnections  bool   `toml:"disable_connections"`
	SocketPath          string `toml:"socket_path"`
	RegistrationTimeout string `toml:"plugin_registration_timeout"`
	RequestTimeout      string `toml:"plugin_request_timeout"`
}

func containerdV2(t *testing.T, path string) {
	t.Helper()
	var c struct {
		Version int `toml:"version"`
		Plugins struct {
			NRI nri `toml:"io.containerd.nri.v1.nri"`
			CRI struct {
				EnableCDI   bool     `toml:"enable_cdi"`
				CDISpecDirs []string `toml:"cdi_spec_dirs"`
			} `toml:"io.containerd.grpc.v1.cri"`
		} `toml:"plugins"`
	}
	strictTOML(t, path, &c)
	require.Equal(t, 2, c.Version)
	require.False(t, c.Plugins.NRI.Disable)
	require.True(t, c.Plugins.CRI.EnableCDI)
	require.Contains(t, c.Plugins.CRI.CDISpecDirs, "/var/run/cdi")
}

func containerdV3(t *testing.T, path string) {
	t.Helper()
	var c struct {
		Version int `toml:"version"`
		Plugins struct {
			NRI     nri `toml:"io.containerd.nri.v1.nri"`
			Runtime struct {
				CDISpecDirs []string `toml:"cdi_spec_dirs"`
			} `toml:"io.containerd.cri.v1.runtime"`
		} `toml:"plugins"`
	}
	strictTOML(t, path, &c)
	require.Equal(t, 3, c.Version)
	require.False(t, c.Plugins.NRI.Disable)
	require.Contains(t, c.Plugins.Runtime.CDISpecDirs, "/var/run/cdi")
}

func crio(t *testing.T, path string) {
	t.Helper()
	var c struct {
		Crio struct {
			NRI struct {
				Enable              bool   `toml:"enable_nri"`
				Listen              string `toml:"nri_listen"`
				RegistrationTimeout string `toml:"nri_plugin_registration_timeout"`
				RequestTimeout      string `toml:"nri_plugin_request_timeout"`
			} `toml:"nri"`
			Runtime struct {
				CDISpecDirs []string `toml:"cdi_spec_dirs"`
			} `toml:"runtime"`
		} `toml:"crio"`
	}
	strictTOML(t, path, &c)
	require.True(t, c.Crio.NRI.Enable)
}

func pod(t *testing.T, path string) {
	t.Helper()
	var p corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(read(t, path), &p))
	require.Equal(t, strings.TrimSuffix(filepath.Base(path), ".yaml"), p.Name)
	gpus := int64(0)
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		limit := c.Resources.Limits["nvidia.com/gpu"]
		gpus += limit.Value()
	}
	require.Equal(t, map[string]int64{"one-gpu": 1, "two-gpus": 2, "no-gpu": 0, "init-and-sidecar": 4}[p.Name], gpus)
}

func spec(t *testing.T, path string) {
	t.Helper()
	s, err := cdi.DecodeSpec(read(t, path))
	require.NoError(t, err)
	require.Len(t, s.ContainerEdits.Hooks, 1)
	_, unknown, err := hookargs.Decode(s.ContainerEdits.Hooks[0].Args)
	require.NoError(t, err)
	require.Empty(t, unknown)
}

// settings reads a daemon's file with the flags that the daemon has.
func settings(t *testing.T, path string) {
	t.Helper()
	var d config.Daemon
	flags := pflag.NewFlagSet(path, pflag.ContinueOnError)
	d.AddFlags(flags, "")
	config.AddFileFlag(flags)
	if strings.HasPrefix(path, "nri-gpu") {
		flags.StringSlice("exempt-namespaces", nil, "")
		flags.StringSlice("exempt-runtime-handlers", nil, "")
	}
	require.NoError(t, flags.Parse([]string{"--config", path}))
	require.NoError(t, config.Load(flags, func(string) (string, bool) { return "", false }))
	require.NoError(t, d.Validate())
}

// unit reads a unit's sections, and asks systemd where there is one.
func unit(t *testing.T, path string) {
	t.Helper()
	keys := map[string]string{}
	section := ""
	lines := bufio.NewScanner(bytes.NewReader(read(t, path)))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		default:
			key, value, ok := strings.Cut(line, "=")
			require.True(t, ok, line)
			keys[section+"."+key] = value
		}
	}
	name := strings.TrimSuffix(filepath.Base(path), ".service")
	require.Equal(t, "/usr/local/lib/nri-gpu/current/"+name+" --config /etc/nri-gpu/"+name+".yaml", keys["Service.ExecStart"])
	require.Equal(t, "always", keys["Service.Restart"])
	require.Equal(t, "multi-user.target", keys["Install.WantedBy"])
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed; the unit was read by this test only")
		return
	}
	// The program does not lie where the unit names it, on a machine that is not
	// a node: another takes its place.
	text := strings.ReplaceAll(string(read(t, path)), "/usr/local/lib/nri-gpu/current/"+name, "/bin/true")
	copied := filepath.Join(t.TempDir(), filepath.Base(path))
	require.NoError(t, os.WriteFile(copied, []byte(text), 0o644))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", copied).CombinedOutput()
	require.NoError(t, err, string(out))
}
