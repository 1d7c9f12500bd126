package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
)

// healthSocket serves nri-gpu's health on a Unix socket, and makes the socket
// anew when its file is gone: the directory, below /run, may be emptied under a
// running daemon, and nobody could ask it any more.
type healthSocket struct {
	path   string
	server *grpc.Server
	log    logrus.FieldLogger

	listener net.Listener
	file     os.FileInfo
	serving  sync.WaitGroup
}

// lookAtSocket is how often the socket's file is looked at.
const lookAtSocket = time.Second

// listen takes the path over from an instance that is gone; the lock says that
// it is.
func (s *healthSocket) listen(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("health socket: %w", err)
	}
	if err := os.Remove(s.path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("health socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", s.path)
	if err != nil {
		return fmt.Errorf("health socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path may be a later socket's by then
	}
	if s.file, err = os.Stat(s.path); err != nil {
		return errors.Join(fmt.Errorf("health socket: %w", err), l.Close())
	}
	s.listener = l
	return nil
}

// run serves until ctx ends, and removes the socket.
func (s *healthSocket) run(ctx context.Context) error {
	serve := func(l net.Listener) {
		s.serving.Go(func() {
			if err := s.server.Serve(l); err != nil {
				s.log.WithError(err).Debug("a health socket ended")
			}
		})
	}
	serve(s.listener)
	tick := time.NewTicker(lookAtSocket)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			if s.there() {
				continue
			}
			if err := s.listen(ctx); err != nil {
				s.log.WithError(err).Error("the health socket was removed and cannot be made again; no container with a GPU starts until it can")
				continue
			}
			s.log.Warn("the health socket was removed, and was made again")
			serve(s.listener)
		}
	}
	s.server.Stop()
	s.serving.Wait()
	if s.there() {
		return os.Remove(s.path)
	}
	return nil
}

func (s *healthSocket) there() bool {
	now, err := os.Stat(s.path)
	return err == nil && os.SameFile(now, s.file)
}
