//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/state"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/probe/report"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

// direct is a container that is made over CRI without a kubelet, and so without
// PreStartContainer.
type direct struct {
	t       *testing.T
	sandbox *harness.Sandbox
	n       int
}

// The kubelet stands still meanwhile: it removes pods that it does not know.
func newDirect(t *testing.T, handler string, annotations map[string]string) *direct {
	t.Helper()
	require.NoError(t, cluster.Kubelet.Pause())
	t.Cleanup(func() { require.NoError(t, cluster.Kubelet.Continue()) })
	name := fmt.Sprintf("direct-%x", rand.Text()[:6])
	s, err := cluster.World.RunSandbox(t.Context(), strings.ToLower(name), handler, annotations)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Remove(context.WithoutCancel(t.Context()))) })
	return &direct{t: t, sandbox: s}
}

// create makes a container that runs the probe, changed by change.
func (d *direct) create(change func(*harness.CRIContainer)) (string, error) {
	d.n++
	c := harness.CRIContainer{
		Name: fmt.Sprintf("main-%d", d.n), Image: harness.DebianImage("").Name, Command: []string{"/probe/probe", "wait"},
		Mounts: map[string]string{"/probe": filepath.Join(cluster.Bin, "test"), harness.InsideConfigPath: cluster.Node.InsideConfig()},
	}
	change(&c)
	return d.sandbox.Create(d.t.Context(), c)
}

// runs creates and starts a container and has the probe look.
func (d *direct) runs(change func(*harness.CRIContainer)) report.Report {
	d.t.Helper()
	id, err := d.create(change)
	require.NoError(d.t, err)
	require.NoError(d.t, harness.StartContainer(d.t.Context(), id))
	text, err := harness.Exec(d.t.Context(), id, "/probe/probe")
	require.NoError(d.t, err)
	var r report.Report
	require.NoError(d.t, json.Unmarshal([]byte(text), &r))
	return r
}

// refused is an error of creation with a text.
func (d *direct) refused(text string, change func(*harness.CRIContainer)) {
	d.t.Helper()
	_, err := d.create(change)
	require.ErrorContains(d.t, err, text)
}

// guarded is an error of the start: the guard was left in place.
func (d *direct) guarded(change func(*harness.CRIContainer)) {
	d.t.Helper()
	id, err := d.create(change)
	require.NoError(d.t, err)
	require.ErrorContains(d.t, harness.StartContainer(d.t.Context(), id), "nri-gpu-was-not-running-when-this-container-was-created")
}

// typed is what a kubelet sends for the first card with the carrier "cdi".
func typed(t *testing.T) func(*harness.CRIContainer) {
	t.Helper()
	name := cdi.KindGPU + "=" + inventory(t).GPUs[0].UUID
	return func(c *harness.CRIContainer) { c.CDIDevices = []string{name} }
}

// signed is what it sends with the carrier "annotation".
func signed(t *testing.T) func(*harness.CRIContainer) {
	t.Helper()
	keys, err := cdi.ReadKeyring(state.DataDir("/var/lib/nri-gpu").Key())
	require.NoError(t, err)
	return token(t, keys)
}

func token(t *testing.T, keys *cdi.Keyring) func(*harness.CRIContainer) {
	t.Helper()
	value, err := keys.Sign(cdi.Grant{Resource: cluster.Node.Resource, Names: []string{cdi.KindGPU + "=" + inventory(t).GPUs[0].UUID}})
	require.NoError(t, err)
	return func(c *harness.CRIContainer) {
		c.Annotations = map[string]string{cdi.AnnotationKey(cluster.Node.Resource): value}
		c.Mounts[cdi.GuardPath] = cdi.GuardMountSource
	}
}

// The first layer alone, PreStartContainer, is in failclosed_test.go: the
// kubelet asks before it asks for a container.
func TestTheSecondLayerAlone(t *testing.T) {
	d := newDirect(t, "", nil)
	for name, end := range map[string]func(*harness.Process) error{"stopped": (*harness.Process).Stop, "killed": (*harness.Process).Kill} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			one := typed(t)
			require.NoError(t, end(cluster.Node.NRI))
			t.Cleanup(func() { restoreNRI(t) })
			require.NoError(t, stack.Until(t.Context(), podTimeout, func(context.Context) error {
				if _, err := os.Stat(guardSpec()); err == nil {
					return fmt.Errorf("%s is still there", guardSpec())
				}
				return nil
			}))
			d.refused("unresolvable CDI devices", one)
		})
	}
}

func guardSpec() string { return filepath.Join(harness.CDIDir, cdi.SpecFileName(cdi.KindGPU)) }

// With the guard spec in place, the first two layers are passed: nri-gpu hangs,
// or ends in the middle of a request.
func thirdLayer(t *testing.T, one func(*harness.CRIContainer)) {
	t.Helper()
	d := newDirect(t, "", nil)
	t.Run("it does not answer in time", func(t *testing.T) {
		d.t = t
		require.NoError(t, cluster.Node.NRI.Pause())
		t.Cleanup(func() {
			require.NoError(t, cluster.Node.NRI.Continue())
			require.NoError(t, cluster.Node.Ready(context.WithoutCancel(t.Context())))
		})
		d.guarded(one)
	})
	t.Run("it is killed within a request", func(t *testing.T) {
		d.t = t
		require.NoError(t, cluster.Node.NRI.Pause())
		t.Cleanup(func() { restoreNRI(t) })
		created := make(chan error, 1)
		var id string
		go func() {
			var err error
			id, err = d.create(one)
			created <- err
		}()
		require.NoError(t, cluster.Node.NRI.Kill())
		// Whether the second layer caught it is a race; the third is there if not.
		if err := <-created; err == nil {
			require.ErrorContains(t, harness.StartContainer(t.Context(), id), "nri-gpu-was-not-running")
		}
	})
	t.Run("it is back", func(t *testing.T) {
		d.t = t
		requireCards(t, d.runs(one), []string{inventory(t).GPUs[0].UUID}, 1)
	})
}

func TestTheThirdLayerAlone(t *testing.T) { thirdLayer(t, typed(t)) }

// All layers together, seen from a pod: whatever was passed, the container did
// not run without its card.
func TestTheLayersTogether(t *testing.T) {
	require.NoError(t, cluster.Node.NRI.Pause())
	create(t, pod("layers", container("main", 1)))
	waits(t, "layers", "nri-gpu")
	require.NoError(t, cluster.Node.NRI.Continue())
	requireExactly(t, running(t, "layers"), "main", 1)
}

// forgeries are containers that claim a card in an annotation.
func forgeries(t *testing.T) {
	t.Helper()
	d := newDirect(t, "", nil)
	key := cdi.AnnotationKey(cluster.Node.Resource)
	good := signed(t)
	foreign, err := cdi.LoadOrCreateKeyring(filepath.Join(t.TempDir(), "alloc.key"))
	require.NoError(t, err)
	change := func(value func(string) string) func(*harness.CRIContainer) {
		return func(c *harness.CRIContainer) {
			good(c)
			c.Annotations[key] = value(c.Annotations[key])
		}
	}
	for name, c := range map[string]struct {
		change func(*harness.CRIContainer)
		want   string
	}{
		"of another node": {token(t, foreign), "which this node does not have"},
		"truncated":       {change(func(v string) string { return v[:len(v)-7] }), "not valid"},
		"oversized":       {change(func(v string) string { return v + strings.Repeat("A", 64<<10) }), "more than 65536"},
		"empty":           {change(func(string) string { return "" }), "not of the form"},
		"another card's":  {change(func(v string) string { return strings.Replace(v, ".ey", ".eyJ", 1) }), "not valid"},
		"another resource's": {func(c *harness.CRIContainer) {
			good(c)
			c.Annotations = map[string]string{cdi.AnnotationKey("example.com/x"): c.Annotations[key]}
		}, "stands under"},
		"a guard and no token": {func(c *harness.CRIContainer) { good(c); c.Annotations = nil }, "no allocation comes with it"},
		"a checkpoint's":       {func(c *harness.CRIContainer) { good(c); c.Annotations["restored"] = "true" }, "restored from a checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			d.refused("nri-gpu refuses", c.change)
			d.refused(c.want, c.change)
		})
	}
	t.Run("the device plugin's own", func(t *testing.T) {
		d.t = t
		requireCards(t, d.runs(good), []string{inventory(t).GPUs[0].UUID}, 1)
	})
	t.Run("copied from the pod by a runtime handler", func(t *testing.T) {
		c := harness.CRIContainer{Mounts: map[string]string{}}
		good(&c)
		through := newDirect(t, harness.PassthroughHandler, c.Annotations)
		through.refused("it is set on the pod", func(*harness.CRIContainer) {})
	})
}

func TestAForgedAllocationIsRefused(t *testing.T) { forgeries(t) }
