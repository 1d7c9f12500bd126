package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxSocketPath is the longest path of a Unix socket, in bytes: sun_path is 108
// with the zero byte at its end, unix(7).
const maxSocketPath = 107

// dialUnix makes a client for a Unix socket; it connects with the first call.
func dialUnix(path string) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	// The name is only what the server sees as the authority; the dialer knows
	// the path, which may hold characters that a target may not.
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		return nil, fmt.Errorf("make client for socket %q: %w", path, err)
	}
	return conn, nil
}

// fileID tells one file from another that took its place. The change time is
// part of it because inode numbers are used again at once on tmpfs and ext4.
type fileID struct {
	device, inode uint64
	changed       int64 // nanoseconds since 1970
}

func identify(path string) (fileID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileID{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, fmt.Errorf("stat %q: no inode on this system", path)
	}
	return fileID{device: st.Dev, inode: st.Ino, changed: st.Ctim.Nano()}, nil
}

// sameInode ignores the change time: a label or mode that changed makes no
// other file.
func (f fileID) sameInode(g fileID) bool { return f.device == g.device && f.inode == g.inode }
