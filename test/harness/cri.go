package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func dialCRI() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+ContainerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// criReady asks the runtime for its conditions.
func criReady(ctx context.Context) error {
	conn, err := dialCRI()
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range resp.GetStatus().GetConditions() {
		if (c.GetType() == "RuntimeReady" || c.GetType() == "NetworkReady") && !c.GetStatus() {
			return fmt.Errorf("%s: %s", c.GetType(), c.GetMessage())
		}
	}
	return nil
}

// Containers lists the containers of all pods.
func Containers(ctx context.Context) ([]*cri.Container, error) {
	conn, err := dialCRI()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	resp, err := cri.NewRuntimeServiceClient(conn).ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	return resp.GetContainers(), nil
}

// Container finds one by its pod's and its own name.
func Container(ctx context.Context, pod, name string) (*cri.Container, error) {
	all, err := Containers(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.GetLabels()["io.kubernetes.pod.name"] == pod && c.GetLabels()["io.kubernetes.container.name"] == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("the runtime has no container %q of pod %q", name, pod)
}

// Exec runs a command in a container and returns what it printed.
func Exec(ctx context.Context, id string, args ...string) (string, error) {
	conn, err := dialCRI()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	resp, err := cri.NewRuntimeServiceClient(conn).ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: args, Timeout: 60})
	if err != nil {
		return "", err
	}
	if resp.GetExitCode() != 0 {
		return string(resp.GetStdout()), errors.New("exit status " + fmt.Sprint(resp.GetExitCode()) + ": " + string(resp.GetStderr()))
	}
	return string(resp.GetStdout()), nil
}

// HasImage tells whether the runtime has an image.
func HasImage(ctx context.Context, ref string) (bool, error) {
	conn, err := dialCRI()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	resp, err := cri.NewImageServiceClient(conn).ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
	return resp.GetImage() != nil, err
}

// Sandbox is a pod that was made without a kubelet.
type Sandbox struct {
	ID     string
	config *cri.PodSandboxConfig
}

// CRIContainer is what a kubelet would send for a container.
type CRIContainer struct {
	Name        string
	Image       string
	Command     []string
	Env         []string // KEY=value
	Annotations map[string]string
	// Mounts maps paths in the container to paths on the host.
	Mounts map[string]string
	// CDIDevices is the typed list.
	CDIDevices []string
}

// RunSandbox makes a pod as a kubelet does, for a runtime handler.
func (w *World) RunSandbox(ctx context.Context, name, handler string, annotations map[string]string) (*Sandbox, error) {
	conn, err := dialCRI()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := &Sandbox{config: &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: name, Uid: name + "-uid", Namespace: "cri"},
		Annotations: annotations, LogDirectory: w.Dir,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    "/" + w.Cgroup + "/cri-" + name,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}},
		},
	}}
	resp, err := cri.NewRuntimeServiceClient(conn).RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: s.config, RuntimeHandler: handler})
	s.ID = resp.GetPodSandboxId()
	return s, err
}

// Remove removes the pod and its containers.
func (s *Sandbox) Remove(ctx context.Context) error {
	conn, err := dialCRI()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	_, stopErr := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.ID})
	_, err = client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: s.ID})
	return errors.Join(stopErr, err)
}

// Create asks for a container.
func (s *Sandbox) Create(ctx context.Context, c CRIContainer) (id string, err error) {
	conn, err := dialCRI()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name}, Image: &cri.ImageSpec{Image: c.Image}, Command: c.Command, Annotations: c.Annotations,
		LogPath: c.Name + ".log", Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}}},
	}
	for inside, host := range c.Mounts {
		config.Mounts = append(config.Mounts, &cri.Mount{ContainerPath: inside, HostPath: host, Readonly: true})
	}
	for _, e := range c.Env {
		key, value, _ := strings.Cut(e, "=")
		config.Envs = append(config.Envs, &cri.KeyValue{Key: key, Value: []byte(value)})
	}
	for _, d := range c.CDIDevices {
		config.CDIDevices = append(config.CDIDevices, &cri.CDIDevice{Name: d})
	}
	resp, err := cri.NewRuntimeServiceClient(conn).CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: s.ID, Config: config, SandboxConfig: s.config})
	return resp.GetContainerId(), err
}

// StartContainer starts a container that was created.
func StartContainer(ctx context.Context, id string) error {
	conn, err := dialCRI()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = cri.NewRuntimeServiceClient(conn).StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}
