//go:build e2e

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/vm/guest/layout"
)

// podName is the static pod's name, with the node's.
const podName = "gpu-pod-" + harness.NodeName

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: gpu-pod, namespace: default}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + layout.Image + `
    imagePullPolicy: Never
    command: [/probe, wait]
    resources: {limits: {nvidia.com/gpu: 1}}
`

func staticPod(t guest) {
	sh(t.T, "systemctl", "enable", "--now", "kubelet")
	registered(t.T)
	addManifest(t.T)
	id, devices := running(t.T)
	holds(t.T, look(t.T, id), podCards(t.T)...)
	require.DirExists(t, "/sys/fs/cgroup/kubepods.slice")
	reload(t)
	holds(t.T, look(t.T, id), podCards(t.T)...)
	data, err := json.Marshal(devices)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(remembered, data, 0o644))
	// It would remove the containers that the scenarios after this one make
	// without it. The pod runs on.
	sh(t.T, "systemctl", "stop", "kubelet")
}

// manifestFile is where the kubelet finds the static pod.
const manifestFile = "/etc/kubernetes/manifests/gpu-pod.yaml"

func addManifest(t *testing.T) {
	t.Helper()
	draft := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(draft, []byte(manifest), 0o644))
	sh(t, "mv", draft, manifestFile)
}

// finalReason is why the kubelet refused the pod for good; nothing when it did
// not, or does not know the pod.
func finalReason(ctx context.Context) (reason string, known bool, err error) {
	text, err := harness.Body(ctx, "http://127.0.0.1:10255/pods")
	if err != nil {
		return "", false, err
	}
	var pods core.PodList
	if err := json.Unmarshal([]byte(text), &pods); err != nil {
		return "", false, err
	}
	i := slices.IndexFunc(pods.Items, func(p core.Pod) bool { return p.Name == podName })
	if i < 0 {
		return "", false, nil
	}
	if s := pods.Items[i].Status; s.Phase == core.PodFailed {
		return s.Reason, true, nil
	}
	return "", true, nil
}

// admitted waits until the kubelet has decided on the pod, and tells whether it
// runs. Where it does not, the kubelet took it up before any device plugin could
// register, which is final (docs/fail-closed.md) and no plugin's to change: the
// pod is made anew then.
func admitted(t *testing.T) bool {
	t.Helper()
	var final string
	eventually(t, "the kubelet decides on the pod", func(ctx context.Context) (err error) {
		if final, _, err = finalReason(ctx); err != nil || final != "" {
			return err
		}
		_, err = containerOfPod(ctx)
		return err
	})
	if final == "" {
		return true
	}
	require.Equal(t, "UnexpectedAdmissionError", final)
	t.Log("the kubelet took the pod up before the device plugin could register, and refused it for good")
	require.NoError(t, os.Remove(manifestFile))
	eventually(t, "the kubelet forgets the pod", func(ctx context.Context) error {
		_, known, err := finalReason(ctx)
		if err == nil && known {
			err = errors.New("it knows it")
		}
		return err
	})
	addManifest(t)
	return false
}

// containerOfPod is the pod's container that runs.
func containerOfPod(ctx context.Context) (*cri.Container, error) {
	all, err := harness.Containers(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(c *cri.Container) bool {
		return c.GetLabels()["io.kubernetes.pod.name"] == podName && c.GetState() == cri.ContainerState_CONTAINER_RUNNING
	})
	if i < 0 {
		return nil, errors.New("none of it runs")
	}
	return all[i], nil
}

// kubeletReturns is a kubelet that was away while the driver was upgraded.
func kubeletReturns(t guest) {
	id, devices := running(t.T)
	sh(t.T, "systemctl", "start", "kubelet")
	registered(t.T)
	again, same := running(t.T)
	require.Equal(t, id, again, "the container was not started anew")
	require.Equal(t, devices, same)
	holds(t.T, look(t.T, id), podCards(t.T)...)
}

// podWaits restarts the pod's container while there is no driver: it does not
// run until there is one again, and the kubelet is told why.
func podWaits(t guest) {
	before := processes(t.T)
	first, devices := running(t.T)
	unloadDriver(t.T)
	since := strings.TrimSpace(sh(t.T, "date", "+%Y-%m-%d %H:%M:%S"))
	_, err := runtime(t.T).StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: first})
	require.NoError(t, err)
	eventually(t.T, "the kubelet is told why the container waits", func(ctx context.Context) error {
		log, err := try(ctx, "journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "--since", since)
		if err == nil && !strings.Contains(log, "the container waits for its GPU "+devices[0]+": the driver is not-loaded") {
			err = errors.New("its log does not say so")
		}
		return err
	})
	loadDriver(t.T)
	served(t.T, newDriver)
	second, same := running(t.T)
	require.NotEqual(t, first, second)
	require.Equal(t, devices, same)
	holds(t.T, look(t.T, second), podCards(t.T)...)
	require.Equal(t, before, processes(t.T))
}

// remembered is where the first boot leaves what the pod was allocated.
const remembered = "/var/lib/nri-gpu-vm/allocated.json"

// registered waits until the device plugin is registered and all is ready.
func registered(t *testing.T) {
	t.Helper()
	eventually(t, "the kubelet listens", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(harness.KubeletDir, "kubelet.sock"))
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	eventually(t, "both daemons are ready", func(ctx context.Context) error {
		var errs []error
		for _, address := range []string{harness.NRIAddress, harness.PluginAddress} {
			text, err := harness.Body(ctx, "http://"+address+"/readyz")
			if err == nil && strings.TrimSpace(text) != "ok" {
				err = fmt.Errorf("%s: %s", address, text)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// running waits until the pod's container runs, and returns its ID and the
// device that the kubelet allocated to it.
func running(t *testing.T) (id string, devices []string) {
	t.Helper()
	eventually(t, "the pod's container runs", func(ctx context.Context) error {
		c, err := containerOfPod(ctx)
		if err != nil {
			return err
		}
		id = c.GetId()
		devices, err = harness.Allocated(c.GetLabels()["io.kubernetes.pod.uid"], "main", "nvidia.com/gpu")
		if err == nil && len(devices) != 1 {
			err = fmt.Errorf("the kubelet's checkpoint has %v for it", devices)
		}
		return err
	})
	return id, devices
}

// podCards are the minors of the pod's cards.
func podCards(t *testing.T) []uint32 {
	t.Helper()
	_, devices := running(t)
	for n := range uint32(8) {
		if devices[0] == uuid(int(n)) {
			return []uint32{n}
		}
	}
	require.Fail(t, "the pod's card is none of the machine's", devices)
	return nil
}
