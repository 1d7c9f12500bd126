package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Paths of the world; /run is private.
const (
	ContainerdSocket = "/run/containerd/containerd.sock"
	NRISocket        = "/run/nri/nri.sock"
	CDIDir           = "/run/cdi"
)

// pauseImage is what containerd 2.4 looks for.
const pauseImage = "registry.k8s.io/pause:3.10.2"

// Tools is where the pinned programs lie.
type Tools string

// Path is one of them.
func (t Tools) Path(name string) string { return filepath.Join(string(t), name) }

// Check says which program is missing.
func (t Tools) Check(names ...string) error {
	for _, n := range names {
		if _, err := os.Stat(t.Path(n)); err != nil {
			return fmt.Errorf("%s is not built: %w; run hack/build-tools.sh", n, err)
		}
	}
	return nil
}

// containerdConfig needs little: NRI and CDI are on by default from 2.0 on. The
// score of a container's processes cannot be lowered without
// CAP_SYS_RESOURCE, which a machine may lack.
const containerdConfig = `version = 3
root = '%[1]s/containerd'
state = '/run/containerd/state'
[grpc]
  address = '` + ContainerdSocket + `'
[plugins.'io.containerd.internal.v1.opt']
  path = '%[1]s/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + pauseImage + `'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  cdi_spec_dirs = ['%[1]s/etc-cdi', '` + CDIDir + `']
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '%[1]s/cni'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = '` + NRISocket + `'
  plugin_path = '%[1]s/nri-plugins'
  plugin_config_path = '%[1]s/nri-conf'
`

const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.67.0.0/16", "dataDir": "%s/ipam", "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// StartContainerd writes its configuration and starts it.
func (w *World) StartContainerd(ctx context.Context, tools Tools) (*Process, error) {
	if err := tools.Check("containerd", "containerd-shim-runc-v2", "ctr"); err != nil {
		return nil, err
	}
	config := filepath.Join(w.Dir, "containerd.toml")
	for path, content := range map[string]string{
		config: fmt.Sprintf(containerdConfig, w.Dir),
		filepath.Join(w.Dir, "cni", "10-pods.conflist"): fmt.Sprintf(cniConfig, w.Dir),
	} {
		if err := writeFile(path, content); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(CDIDir, 0o755); err != nil {
		return nil, err
	}
	return w.start(ctx, command{
		name: "containerd", path: tools.Path("containerd"), args: []string{"--config", config},
		env:   []string{"PATH=" + string(tools) + ":/usr/sbin:/usr/bin:/sbin:/bin"},
		ready: criReady, within: time.Minute,
	})
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
