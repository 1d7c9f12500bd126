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
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.` + PassthroughHandler + `]
    runtime_type = 'io.containerd.runc.v2'
    pod_annotations = ['*']
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

// containerd17Config is that of containerd 1.7, which has NRI switched off and
// writes its tables' names otherwise. CDI is left off, as it is by default: the
// names travel in an annotation. The second runtime handler passes every
// annotation of a pod on to its containers, which an administrator may have
// configured for other reasons.
const containerd17Config = `version = 2
root = '%[1]s/containerd-1.7'
state = '/run/containerd/state-1.7'
[grpc]
  address = '` + ContainerdSocket + `'
[plugins.'io.containerd.internal.v1.opt']
  path = '%[1]s/opt'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '` + pauseImage + `'
  restrict_oom_score_adj = true
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '/usr/lib/cni'
    conf_dir = '%[1]s/cni'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.` + PassthroughHandler + `]
    runtime_type = 'io.containerd.runc.v2'
    pod_annotations = ['*']
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = '` + NRISocket + `'
  plugin_path = '%[1]s/nri-plugins'
  plugin_config_path = '%[1]s/nri-conf'
`

// PassthroughHandler is a runtime handler that copies every annotation of a pod
// to its containers.
const PassthroughHandler = "passthrough"

const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.67.0.0/16", "dataDir": "%s/ipam", "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// StartContainerd starts containerd 2.4.
func (w *World) StartContainerd(ctx context.Context, tools Tools) (*Process, error) {
	return w.startContainerd(ctx, tools, "containerd", containerdConfig)
}

// Containerd17 is where the programs of containerd 1.7 lie.
func (t Tools) Containerd17() Tools { return Tools(t.Path("containerd-1.7")) }

// StartContainerd17 starts containerd 1.7, in the place of the other one: on the
// same sockets, with images and containers of its own.
func (w *World) StartContainerd17(ctx context.Context, tools Tools) (*Process, error) {
	return w.startContainerd(ctx, tools.Containerd17(), "containerd-1.7", containerd17Config)
}

func (w *World) startContainerd(ctx context.Context, tools Tools, name, content string) (*Process, error) {
	if err := tools.Check("containerd", "containerd-shim-runc-v2", "ctr"); err != nil {
		return nil, err
	}
	config := filepath.Join(w.Dir, name+".toml")
	for path, content := range map[string]string{
		config: fmt.Sprintf(content, w.Dir),
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
		name: name, path: tools.Path("containerd"), args: []string{"--config", config},
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
