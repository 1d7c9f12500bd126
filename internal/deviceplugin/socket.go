package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// socketPrefix starts the names of our sockets, and of nobody else's.
const socketPrefix = "nri-gpu-"

// maxSuffix is the length from which a resource's name is cut in a socket's.
const maxSuffix = 24

// deadSocketTimeout bounds the look whether somebody listens on a socket.
const deadSocketTimeout = time.Second

// socketPath is the path of a generation's socket:
// nri-gpu-<last part of the resource>-<pid>-<serial>.sock.
func socketPath(cfg Config, serial int64) (string, error) {
	name := fmt.Sprintf("%s%d-%s.sock", socketStem(cfg.Resource), os.Getpid(), strconv.FormatInt(serial, 36))
	path := filepath.Join(cfg.KubeletDir, name)
	// Room for the largest process number and serial of the next decades.
	if worst := len(cfg.KubeletDir) + len("/") + len(socketStem(cfg.Resource)) + len("4194304-zzzzzzzzz.sock"); worst > maxSocketPath {
		return "", fmt.Errorf("kubelet directory %q: a socket's path there would have %d bytes, and Linux allows %d; choose a shorter --kubelet-dir",
			cfg.KubeletDir, worst, maxSocketPath)
	}
	return path, nil
}

// socketStem is what the sockets of one resource have in common. A long name is
// cut, and told from others by a checksum of the whole.
func socketStem(resource string) string {
	_, suffix, _ := strings.Cut(resource, "/")
	if len(suffix) > maxSuffix {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(resource)) // a hash never fails
		suffix = fmt.Sprintf("%s.%08x", suffix[:maxSuffix-9], sum.Sum32())
	}
	return socketPrefix + suffix + "-"
}

// removeDeadSockets removes the sockets of this resource that an earlier
// process left and nobody listens on.
func removeDeadSockets(ctx context.Context, cfg Config, log logrus.FieldLogger) {
	entries, err := os.ReadDir(cfg.KubeletDir)
	if err != nil {
		log.WithError(err).Debug("no kubelet directory to clean")
		return
	}
	for _, e := range entries {
		if !isSocketOf(cfg.Resource, e.Name()) || e.Type() != os.ModeSocket {
			continue
		}
		path := filepath.Join(cfg.KubeletDir, e.Name())
		if !isDead(ctx, path) {
			log.Warnf("socket %q is in use: another device plugin serves %q on this node", path, cfg.Resource)
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			log.WithError(err).Warn("remove the socket of an earlier process")
			continue
		}
		log.Debugf("removed the socket %q of an earlier process", path)
	}
}

// isSocketOf tells whether a file's name is stem, number, dash, serial and
// suffix, so that a resource whose name starts with another's is left alone.
func isSocketOf(resource, name string) bool {
	rest, ours := strings.CutPrefix(name, socketStem(resource))
	rest, socket := strings.CutSuffix(rest, ".sock")
	pid, serial, two := strings.Cut(rest, "-")
	if !ours || !socket || !two {
		return false
	}
	_, errPID := strconv.ParseUint(pid, 10, 32)
	_, errSerial := strconv.ParseUint(serial, 36, 64)
	return errPID == nil && errSerial == nil
}

func isDead(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, deadSocketTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = conn.Close() // nothing was written
	return false
}
