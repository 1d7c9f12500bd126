// Package httpserve is the HTTP side of a daemon: health, readiness with its
// reasons, metrics, and the daemon's state for a person who debugs it.
//
// Listen binds, so that an address that is taken is an error at start and not
// a log line later; Serve answers until its context ends.
//
//	/healthz      200 while the process answers
//	/readyz       200, or 503 with one reason a line
//	/metrics      the registry that was passed in
//	/debug/state  the daemon's state as JSON
package httpserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// requestTimeout bounds one request, headers to answer.
	requestTimeout = 10 * time.Second
	// shutdownTimeout is how long requests may go on after Serve's context has
	// ended.
	shutdownTimeout = 2 * time.Second
)

// Options say where to listen and what to answer.
type Options struct {
	// Address is host:port. Empty means that nothing is served: Listen binds
	// nothing, and Serve only waits.
	Address string
	// NotReady returns why the daemon is not ready, each reason a sentence;
	// empty means ready. It is called at each request and must not block.
	NotReady func() []string
	// Metrics is what /metrics shows.
	Metrics prometheus.Gatherer
	// State returns what /debug/state shows, a value that encodes as JSON.
	State func() any
}

// Server is a bound listener.
type Server struct {
	listener net.Listener // nil when there is no address
	http     *http.Server
}

// Listen binds the address.
func Listen(ctx context.Context, opts Options) (*Server, error) {
	s := &Server{http: &http.Server{
		Handler:           http.TimeoutHandler(handler(opts), requestTimeout, "the daemon did not answer in time\n"),
		ReadHeaderTimeout: requestTimeout,
		IdleTimeout:       time.Minute,
	}}
	if opts.Address == "" {
		return s, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", opts.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for health and metrics on %q: %w; choose another --listen-address, or an empty one for none", opts.Address, err)
	}
	s.listener = listener
	return s, nil
}

// Addr is the bound address, with the port that was chosen for ":0"; empty
// when nothing is served.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Serve answers until ctx ends, then closes: requests that are under way may
// finish within two seconds. It returns nil when ctx ended it.
func (s *Server) Serve(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve health and metrics on %q: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := s.http.Shutdown(closing)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-failed //nolint:errcheck // http.ErrServerClosed, since we closed it
	return err
}

func handler(opts Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := opts.NotReady(); len(reasons) > 0 {
			text(w, http.StatusServiceUnavailable, strings.Join(reasons, "\n"))
			return
		}
		text(w, http.StatusOK, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /debug/state", func(w http.ResponseWriter, _ *http.Request) {
		data, err := json.MarshalIndent(opts.State(), "", "  ")
		if err != nil {
			text(w, http.StatusInternalServerError, fmt.Sprintf("encode state: %v", err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(data, '\n')) // the client has gone; nobody is left to tell
	})
	return mux
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n")) // as above
}
