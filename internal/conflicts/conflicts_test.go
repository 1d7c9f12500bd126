package conflicts_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/conflicts"
)

func ids(findings []conflicts.Finding) []string {
	out := []string{}
	for _, f := range findings {
		out = append(out, f.ID)
	}
	return out
}

func TestFindingsByFile(t *testing.T) {
	t.Parallel()
	nvidia := `
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "%s"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
`
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing there":             {nil, []string{}},
		"a new configuration":       {map[string]string{"etc/containerd/config.toml": "version = 3\n"}, []string{}},
		"an old one, silent":        {map[string]string{"etc/containerd/config.toml": "version = 2\n"}, []string{"nri-off", "cdi-off"}},
		"NRI off":                   {map[string]string{"etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"}, []string{"nri-off"}},
		"no connections":            {map[string]string{"etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable_connections = true\n"}, []string{"nri-off"}},
		"NVIDIA's runtime, default": {map[string]string{"etc/containerd/config.toml": "version = 3\n" + fmt.Sprintf(nvidia, "nvidia")}, []string{"nvidia-default-runtime"}},
		"NVIDIA's runtime, a class": {map[string]string{"etc/containerd/config.toml": "version = 3\n" + fmt.Sprintf(nvidia, "runc")}, []string{"nvidia-runtime-class"}},
		"in an import": {map[string]string{
			"etc/containerd/config.toml": "version = 3\nimports = ['/etc/containerd/conf.d/*.toml', 'loop.toml']\n", "etc/containerd/loop.toml": "imports = ['config.toml']\n",
			"etc/containerd/conf.d/nvidia.toml": fmt.Sprintf(nvidia, "nvidia"),
		}, []string{"nvidia-default-runtime"}},
		"not TOML":             {map[string]string{"etc/containerd/config.toml": "version = \n"}, []string{}},
		"CRI-O without NRI":    {map[string]string{"etc/crio/crio.conf.d/99-x.conf": "[crio.nri]\nenable_nri = false\n"}, []string{"nri-off"}},
		"NVIDIA's NRI plugin":  {map[string]string{"opt/nri/plugins/10-nvidia-ctk": ""}, []string{"nri-plugin"}},
		"another spec of ours": {map[string]string{"etc/cdi/x.json": `{"cdiVersion":"0.5.0","kind":"nri-gpu.io/gpu","devices":[{"name":"x","containerEdits":{"env":["A=b"]}}]}`}, []string{"cdi-spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := t.TempDir()
			for path, content := range c.files {
				full := filepath.Join(host, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
				require.NoError(t, os.WriteFile(full, []byte(content), 0o644))
			}
			found := conflicts.Find(conflicts.Node{Host: host, CDIDir: filepath.Join(host, "run/cdi")})
			require.Equal(t, c.want, ids(found))
			for _, f := range found {
				require.NotEmpty(t, f.Subject)
				require.NotEmpty(t, f.Next)
			}
		})
	}
}

func TestALiveSocketOfNVIDIAsPluginIsNamed(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "kd") //nolint:usetesting // a socket's path is limited to 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	node := conflicts.Node{Host: t.TempDir(), KubeletDir: dir, Resource: "nvidia.com/gpu"}
	socket := filepath.Join(dir, "nvidia-gpu.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	require.Equal(t, []string{"device-plugin"}, ids(conflicts.Find(node)))
	require.NoError(t, l.Close())
	require.NoError(t, os.WriteFile(socket, nil, 0o644))
	require.Empty(t, conflicts.Find(node), "a file that nobody listens on is no plugin")
}
