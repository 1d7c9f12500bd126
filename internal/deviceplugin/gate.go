package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// gateTimeout bounds the question whether nri-gpu is ready: a machine that is
// busy takes its time, and a wrong "no" costs a pod ten seconds. The kubelet allows
// PreStartContainer 30 s, and starts no other container of the pod meanwhile.
const gateTimeout = time.Second

// gate asks nri-gpu's health service.
type gate struct{ socket string }

// check returns nil when nri-gpu is connected to the runtime, and else why it
// is not known to be. Each check connects anew, since a connection that is
// kept waits long before it tries again after a failure.
func (g gate) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	conn, err := dialUnix(g.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case err != nil && g.absent():
		return fmt.Errorf("nri-gpu does not run: its socket %q does not exist", g.socket)
	case status.Code(err) == codes.DeadlineExceeded:
		return fmt.Errorf("nri-gpu did not answer on %q within %s", g.socket, gateTimeout)
	case err != nil:
		return fmt.Errorf("nri-gpu cannot be asked on %q: %s", g.socket, status.Convert(err).Message())
	case answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return fmt.Errorf("nri-gpu runs and is not ready: it is not connected to the container runtime, or has nothing to give (health %s)", answer.GetStatus())
	}
	return nil
}

func (g gate) absent() bool {
	_, err := os.Stat(g.socket)
	return errors.Is(err, fs.ErrNotExist)
}

// follow reports each health that nri-gpu announces until the stream breaks,
// and returns why it did. A stream that cannot be opened is a broken one.
func (g gate) follow(ctx context.Context, report func(serving bool)) error {
	conn, err := dialUnix(g.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("follow nri-gpu's health on %q: %w", g.socket, err)
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("follow nri-gpu's health on %q: %w", g.socket, err)
		}
		report(answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING)
	}
}
