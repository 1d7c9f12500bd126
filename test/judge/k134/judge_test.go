// Package k134 has the device manager of Kubernetes 1.34.
package k134

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"

	"github.com/nri-gpu/nri-gpu/test/judge"
)

func TestMain(m *testing.M) { judge.Main(m) }

func TestDeviceManager(t *testing.T) { judge.Run(t, create) }

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

type manager struct {
	*devicemanager.ManagerImpl
	pods map[string]*v1.Pod
}

func create(t *testing.T) judge.Manager {
	t.Helper()
	impl, err := devicemanager.NewManagerImpl(nil, topologymanager.NewFakeManager())
	require.NoError(t, err)
	m := &manager{ManagerImpl: impl, pods: pods(t)}
	require.NoError(t, impl.Start(m.active, ready{}, containermap.NewContainerMap(), sets.New[string]()))
	return m
}

// known are the pods of a test, which outlive a manager.
var known = map[string]map[string]*v1.Pod{}

func pods(t *testing.T) map[string]*v1.Pod {
	t.Helper()
	if known[t.Name()] == nil {
		known[t.Name()] = map[string]*v1.Pod{}
	}
	return known[t.Name()]
}

func (m *manager) active() []*v1.Pod {
	var out []*v1.Pod
	for _, p := range m.pods {
		out = append(out, p)
	}
	return out
}

func (m *manager) Capacity() (capacity, allocatable int64) {
	c, a, _ := m.GetCapacity()
	cq, aq := c[judge.Resource], a[judge.Resource]
	return cq.Value(), aq.Value()
}

func (m *manager) Allocate(name string, devices int) error {
	quantity := v1.ResourceList{judge.Resource: *resource.NewQuantity(int64(devices), resource.DecimalSI)}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: quantity, Requests: quantity}}}}}
	p.UID, p.Name = types.UID(name), name
	m.pods[name] = p
	err := m.ManagerImpl.Allocate(p, &p.Spec.Containers[0])
	if err != nil {
		delete(m.pods, name)
	}
	return err
}

func (m *manager) Devices(pod string) []string {
	return slices.Sorted(maps.Keys(m.GetDevices(pod, "main")[judge.Resource]))
}

func (m *manager) Names(pod string) ([]string, error) {
	p := m.pods[pod]
	opts, err := m.GetDeviceRunContainerOptions(p, &p.Spec.Containers[0])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range opts.CDIDevices {
		out = append(out, d.Name)
	}
	slices.Sort(out)
	return out, nil
}

func (m *manager) Status(pod string) {
	m.UpdateAllocatedResourcesStatus(m.pods[pod], &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}})
}

func (m *manager) Forget(pod string) { delete(m.pods, pod) }
