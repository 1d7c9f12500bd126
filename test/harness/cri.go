package harness

import (
	"context"
	"errors"
	"fmt"

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
