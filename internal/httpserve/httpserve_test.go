package httpserve_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/nri-gpu/nri-gpu/internal/httpserve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(notReady func() []string) httpserve.Options {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "answers_total", Help: "x"}, func() float64 { return 42 }))
	return httpserve.Options{
		Address:  "127.0.0.1:0",
		NotReady: notReady,
		Metrics:  reg,
		State:    func() any { return map[string]string{"driver": "ready"} },
	}
}

// serve starts a server and returns its base URL and what ends it.
func serve(t *testing.T, opts httpserve.Options) (base string, stop func()) {
	t.Helper()
	s, err := httpserve.Listen(t.Context(), opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	return "http://" + s.Addr(), func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

func TestReadinessFollowsTheReasons(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	base, stop := serve(t, options(func() []string {
		if ready.Load() {
			return nil
		}
		return []string{"the driver is not loaded", "no stream is open"}
	}))
	defer stop()

	status, body := get(t, base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "the driver is not loaded\nno stream is open\n", body)

	ready.Store(true)
	status, body = get(t, base+"/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)

	status, _ = get(t, base+"/healthz")
	require.Equal(t, http.StatusOK, status)
}

func TestMetricsAndStateAreThoseOfTheDaemon(t *testing.T) {
	t.Parallel()
	base, stop := serve(t, options(func() []string { return nil }))
	defer stop()

	status, body := get(t, base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "answers_total 42")

	status, body = get(t, base+"/debug/state")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"driver":"ready"}`, body)

	status, _ = get(t, base+"/elsewhere")
	require.Equal(t, http.StatusNotFound, status)
}

func TestStateThatCannotBeEncodedIsAnErrorAndNotAPanic(t *testing.T) {
	t.Parallel()
	opts := options(func() []string { return nil })
	opts.State = func() any { return func() {} }
	base, stop := serve(t, opts)
	defer stop()
	status, body := get(t, base+"/debug/state")
	require.Equal(t, http.StatusInternalServerError, status)
	require.Contains(t, body, "encode state")
}

func TestAnAddressThatIsTakenIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	base, stop := serve(t, options(func() []string { return nil }))
	defer stop()
	opts := options(nil)
	opts.Address = base[len("http://"):]
	_, err := httpserve.Listen(t.Context(), opts)
	require.ErrorContains(t, err, opts.Address)
	require.ErrorContains(t, err, "--listen-address")
}

func TestWithoutAnAddressNothingIsServed(t *testing.T) {
	t.Parallel()
	opts := options(nil)
	opts.Address = ""
	s, err := httpserve.Listen(t.Context(), opts)
	require.NoError(t, err)
	require.Empty(t, s.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Serve(ctx))
}
