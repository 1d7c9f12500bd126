package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// KubeletDir is the kubelet's device plugin directory, a constant of its.
const KubeletDir = "/var/lib/kubelet/device-plugins"

// PodResourcesSocket is where the kubelet says what it allocated.
const PodResourcesSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Kubelet says how the kubelet runs.
type Kubelet struct {
	// Kubeconfig joins it to a control plane; without one it runs the pods of
	// Manifests.
	Kubeconfig string
	Manifests  string
	// Extra is further lines of its configuration.
	Extra string
}

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /%[1]s
containerRuntimeEndpoint: unix://` + ContainerdSocket + `
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 50Mi, nodefs.available: 100Mi, imagefs.available: 100Mi}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
healthzBindAddress: 127.0.0.1
healthzPort: 10248
oomScoreAdj: 0
podLogsDir: %[2]s/pod-logs
resolvConf: ""
syncFrequency: 10s
nodeStatusUpdateFrequency: 2s
volumePluginDir: %[2]s/volume-plugins
registerNode: %[3]t
%[4]s`

// StartKubelet writes its configuration and starts it.
func (w *World) StartKubelet(ctx context.Context, tools Tools, k Kubelet) (*Process, error) {
	if err := tools.Check("kubelet"); err != nil {
		return nil, err
	}
	if err := makeCgroup(w.Cgroup); err != nil {
		return nil, err
	}
	manifests := ""
	if k.Manifests != "" {
		manifests = "staticPodPath: " + k.Manifests + "\nfileCheckFrequency: 1s\n"
	}
	config := filepath.Join(w.Dir, "kubelet.yaml")
	if err := writeFile(config, fmt.Sprintf(kubeletConfig, w.Cgroup, w.Dir, k.Kubeconfig != "", manifests+k.Extra)); err != nil {
		return nil, err
	}
	args := []string{"--config", config, "--hostname-override", NodeName, "--v", "2"}
	if k.Kubeconfig != "" {
		args = append(args, "--kubeconfig", k.Kubeconfig)
	}
	p, err := w.start(ctx, command{
		name: "kubelet", path: tools.Path("kubelet"), args: args,
		env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		ready: get("http://127.0.0.1:10248/healthz"), within: 2 * time.Minute,
	})
	if err != nil {
		return nil, err
	}
	return p, p.await(ctx, listening(filepath.Join(KubeletDir, "kubelet.sock")), time.Minute)
}

// get is ready when an URL answers 200.
func get(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}

// Checkpoint is the kubelet's record of what it allocated.
func Checkpoint() ([]byte, error) {
	return os.ReadFile(filepath.Join(KubeletDir, "kubelet_internal_checkpoint"))
}

// Body returns what an URL answers, whatever its status.
func Body(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(data), err
}
