package fakenri

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// proxy passes connections on, and can cut them.
type proxy struct {
	listener net.Listener
	inner    string
	mu       sync.Mutex
	conns    []net.Conn
	done     sync.WaitGroup
}

func newProxy(front, inner string) (*proxy, error) {
	l, err := net.Listen("unix", front)
	if err != nil {
		return nil, fmt.Errorf("listen for plugins: %w", err)
	}
	p := &proxy{listener: l, inner: inner}
	p.done.Go(p.accept)
	return p, nil
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		back, err := net.Dial("unix", p.inner)
		if err != nil {
			_ = conn.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, conn, back)
		p.mu.Unlock()
		p.done.Go(func() { pipe(conn, back) })
		p.done.Go(func() { pipe(back, conn) })
	}
}

// pipe copies until one side ends, and then ends the other.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}
