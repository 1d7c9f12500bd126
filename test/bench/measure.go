package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// patience bounds one call of the runtime's.
const patience = time.Minute

// times are those of each mode by round, in milliseconds.
type times map[string][]float64

// bench makes containers in one pod.
type bench struct {
	client cri.RuntimeServiceClient
	config *cri.PodSandboxConfig
	pod    string
	image  string
}

func measure(ctx context.Context, s *stack.Stack, all []mode, o options, random *rand.Rand) (result times, err error) {
	conn, err := grpc.NewClient("unix:"+harness.ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	b := &bench{client: cri.NewRuntimeServiceClient(conn), image: harness.DebianImage(s.Cache).Name, config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "bench", Uid: "bench", Namespace: "bench"}, LogDirectory: s.World.Dir,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    "/" + s.World.Cgroup + "/bench",
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: hostNetwork()},
		},
	}}
	sandbox, err := b.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: b.config})
	if err != nil {
		return nil, err
	}
	b.pod = sandbox.GetPodSandboxId()
	defer func() {
		_, stopErr := b.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: b.pod})
		_, removeErr := b.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: b.pod})
		err = errors.Join(err, stopErr, removeErr)
	}()
	result = times{}
	for round := range o.warmUp + o.rounds {
		for _, k := range random.Perm(len(all)) {
			m := all[k]
			took, err := b.container(ctx, m, round)
			if err != nil {
				return nil, fmt.Errorf("mode %s, round %d: %w", m.name, round, err)
			}
			if round >= o.warmUp {
				result[m.name] = append(result[m.name], float64(took)/float64(time.Millisecond))
			}
		}
	}
	return result, nil
}

func hostNetwork() *cri.NamespaceOption { return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE} }

// container makes one, and removes it untimed.
func (b *bench) container(ctx context.Context, m mode, round int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: fmt.Sprintf("%s-%d", m.name, round)}, Image: &cri.ImageSpec{Image: b.image}, Command: []string{"/bin/sleep", "inf"},
		LogPath: "bench.log", Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: hostNetwork()}},
	}
	for _, e := range m.env {
		key, value, _ := strings.Cut(e, "=")
		config.Envs = append(config.Envs, &cri.KeyValue{Key: key, Value: []byte(value)})
	}
	if m.device != "" {
		config.CDIDevices = []*cri.CDIDevice{{Name: m.device}}
	}
	begin := time.Now()
	made, err := b.client.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: b.pod, Config: config, SandboxConfig: b.config})
	if err != nil {
		return 0, err
	}
	id := made.GetContainerId()
	if _, err := b.client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id}); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if _, err := b.client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id}); err != nil {
		return 0, err
	}
	_, err = b.client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	return took, err
}
