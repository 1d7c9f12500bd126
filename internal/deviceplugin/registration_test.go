package deviceplugin

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/testutil/fakekubelet"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// kubelets are both generations.
func kubelets() map[string]fakekubelet.Script {
	return map[string]fakekubelet.Script{"up to 1.36": old(), "since 1.37": modern()}
}

func TestThePluginRegistersAndStopsWithoutATrace(t *testing.T) {
	t.Parallel()
	for kubelet, script := range kubelets() {
		t.Run(kubelet, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			k := fakekubelet.New(t, n.kubelet, script)
			k.Start()
			n.list(gpus(4))
			stop := n.run()
			k.Wait("four healthy devices", listed(4))
			n.ready()
			require.Len(t, k.Registrations(), 1)
			require.Equal(t, testResource, k.Registrations()[0].GetResourceName())
			require.True(t, k.Registrations()[0].GetOptions().GetPreStartRequired())
			require.Len(t, n.sockets(), 1)
			require.Equal(t, n.plugin.State().Registration.Socket, k.Now().Socket)
			stop()
			require.Empty(t, n.sockets())
			k.Wait("the end of the stream", func(v *fakekubelet.View) bool { return v.Endpoints == 0 })
		})
	}
}

func TestAKubeletThatRestartsIsRegisteredWithAnew(t *testing.T) {
	t.Parallel()
	for name, clean := range map[string]func(*fakekubelet.Kubelet){
		"it removes the sockets":      func(k *fakekubelet.Kubelet) { k.Clean(false) },
		"it removes every file":       func(k *fakekubelet.Kubelet) { k.Clean(true) },
		"it removes its own alone":    func(k *fakekubelet.Kubelet) { requireRemove(t, k) },
		"it makes its directory anew": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kubelet, script := range kubelets() {
				t.Run(kubelet, func(t *testing.T) {
					t.Parallel()
					n := newNode(t)
					k := fakekubelet.New(t, n.kubelet, script)
					k.Start()
					n.list(gpus(2))
					n.run()
					k.Wait("two healthy devices", listed(2))
					k.Stop()
					if clean == nil {
						require.NoError(t, os.RemoveAll(n.kubelet))
					} else {
						clean(k)
					}
					k.Start()
					k.Wait("two healthy devices again", listed(2))
					n.ready()
				})
			}
		})
	}
}

func requireRemove(t *testing.T, k *fakekubelet.Kubelet) {
	t.Helper()
	require.NoError(t, os.Remove(k.Socket()))
}

func TestASocketThatVanishesIsReplaced(t *testing.T) {
	t.Parallel()
	for kubelet, script := range kubelets() {
		t.Run(kubelet, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			k := fakekubelet.New(t, n.kubelet, script)
			k.Start()
			n.list(gpus(2))
			n.run()
			k.Wait("two healthy devices", listed(2))
			first := k.Now().Socket
			require.NoError(t, os.Remove(first))
			k.Wait("another socket", func(v *fakekubelet.View) bool { return v.Socket != first && listed(2)(v) })
			require.NoFileExists(t, first)
		})
	}
}

func TestAStreamThatEndsIsRegisteredAnewOnAnotherSocket(t *testing.T) {
	t.Parallel()
	for kubelet, script := range kubelets() {
		t.Run(kubelet, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			k := fakekubelet.New(t, n.kubelet, script)
			k.Start()
			n.list(gpus(2))
			n.run()
			k.Wait("two healthy devices", listed(2))
			first := k.Now().Socket
			k.CloseStreams()
			k.Wait("another socket", func(v *fakekubelet.View) bool { return v.Socket != first && listed(2)(v) })
		})
	}
}

func TestAKubeletThatOpensNoStreamIsAskedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, fakekubelet.Script{KeyedBySocket: true})
	k.Start()
	n.list(gpus(2))
	n.run()
	k.Wait("a second registration", func(v *fakekubelet.View) bool { return v.Registrations >= 2 })
	require.NotEmpty(t, n.plugin.NotReady())
	k.SetScript(modern())
	k.Wait("two healthy devices", listed(2))
	seen := map[string]bool{}
	for _, r := range k.Registrations() {
		require.False(t, seen[r.GetEndpoint()], "socket %s was registered twice", r.GetEndpoint())
		seen[r.GetEndpoint()] = true
	}
}

func TestARegistrationThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]fakekubelet.Verdict{
		"it is rejected":       fakekubelet.Reject,
		"it is never answered": fakekubelet.Hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			script := modern()
			script.Register = func(count int) fakekubelet.Verdict {
				if count <= 2 {
					return verdict
				}
				return fakekubelet.Accept
			}
			k := fakekubelet.New(t, n.kubelet, script)
			k.Start()
			n.list(gpus(2))
			n.run()
			k.Wait("two healthy devices", listed(2))
			n.ready()
			require.Len(t, k.Registrations(), 3)
			require.Len(t, n.sockets(), 1, "failed attempts leave no sockets")
		})
	}
}

func TestAHangingRegistrationIsGivenUpWhenTheKubeletRestarts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.plugin.timing.register = time.Hour
	script := modern()
	script.Register = func(int) fakekubelet.Verdict { return fakekubelet.Hang }
	k := fakekubelet.New(t, n.kubelet, script)
	k.Start()
	n.list(gpus(2))
	n.run()
	k.Wait("the registration that hangs", func(v *fakekubelet.View) bool { return v.Registrations == 1 })
	k.Restart(modern())
	k.Wait("two healthy devices", listed(2))
}

func TestAKubeletThatIsSlowToAcceptIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	proceed := k.StartSlowly()
	n.list(gpus(2))
	n.run()
	require.Eventually(t, func() bool { return n.plugin.State().Registration.Attempts >= 1 }, 10*time.Second, time.Millisecond)
	proceed()
	k.Wait("two healthy devices", listed(2))
}

func TestADirectoryThatAppearsLaterIsFound(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	require.NoError(t, os.Remove(n.kubelet))
	n.list(gpus(2))
	n.run()
	require.Eventually(t, func() bool {
		reasons := n.plugin.NotReady()
		return len(reasons) == 1 && reasons[0] == `the kubelet's socket "`+n.kubelet+`/kubelet.sock" does not exist; start the kubelet, or set --kubelet-dir`
	}, 10*time.Second, time.Millisecond)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	k.Wait("two healthy devices", listed(2))
}

func TestWithoutInotifyTheSocketsArePolled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.plugin.newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(2))
	n.run()
	k.Wait("two healthy devices", listed(2))
	k.Restart(modern())
	k.Wait("two healthy devices", listed(2))
}

func TestNothingIsRegisteredBeforeACarrierIsKnown(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	require.NoError(t, os.Remove(n.nri.CarrierFile))
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(2))
	n.run()
	require.Eventually(t, func() bool { return len(n.plugin.NotReady()) == 1 && n.plugin.State().Registration.Waiting != "" }, 10*time.Second, time.Millisecond)
	require.Contains(t, n.plugin.NotReady()[0], n.nri.CarrierFile)
	require.Contains(t, n.plugin.NotReady()[0], "start nri-gpu")
	require.Empty(t, k.Registrations())
	n.chooseCarrier(cdi.CarrierAnnotation)
	k.Wait("two healthy devices", listed(2))
	require.Equal(t, "annotation", n.plugin.State().Carrier)

	require.NoError(t, os.WriteFile(n.nri.CarrierFile, []byte("{"), 0o600))
	k.Restart(modern())
	k.Wait("two healthy devices though the file is broken", listed(2))
	require.Equal(t, "annotation", n.plugin.State().Carrier)
}

func TestANodeWithoutADeviceRegistersNothingAndIsReady(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(0))
	n.run()
	require.Eventually(t, func() bool { return n.plugin.State().Registration.Waiting == noDevice }, 10*time.Second, time.Millisecond)
	require.Empty(t, n.plugin.NotReady())
	require.Empty(t, k.Registrations())
	require.Empty(t, n.sockets())
	n.list(gpus(1))
	k.Wait("the card that appeared", listed(1))
}

func TestBothStreamsOfAKubeletFollowTheList(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, fakekubelet.Script{KeyedBySocket: true, Streams: 2})
	k.Start()
	n.list(gpus(2))
	n.run()
	k.Wait("a list on each stream", func(v *fakekubelet.View) bool { return v.Streams == 2 && v.Lists == 2 })
	n.list(gpus(3))
	k.Wait("the new list on each stream", func(v *fakekubelet.View) bool { return v.Lists == 4 && v.Healthy() == 3 })
}

func TestFiftyRestartsLeaveNothingBehind(t *testing.T) {
	n := newNode(t)
	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(2))
	n.run()
	k.Wait("two healthy devices", listed(2))
	n.ready()
	before, files := runtime.NumGoroutine(), openFiles(t)
	for i := range 50 {
		script := modern()
		script.KeyedBySocket = i%2 == 0
		k.Restart(script)
		k.Wait("two healthy devices", listed(2))
	}
	n.ready()
	// Connections come and go; what is left by each restart would be fifty.
	const noise = 10
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+noise && openFiles(t) <= files+noise }, 10*time.Second, 10*time.Millisecond,
		"%d goroutines and %d files were there before, %d and %d are now", before, files, runtime.NumGoroutine(), openFiles(t))
	require.Len(t, n.sockets(), 1)
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestOnlyOwnDeadSocketsAreRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	leave := func(name string) string {
		path := filepath.Join(n.kubelet, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
		return path
	}
	dead := leave("nri-gpu-gpu-1-abc.sock")
	other := leave("nri-gpu-gpu-small-1-abc.sock") // of the resource "…/gpu-small"
	foreign := leave("nvidia-gpu.sock")
	live := filepath.Join(n.kubelet, "nri-gpu-gpu-2-abc.sock")
	l, err := net.Listen("unix", live)
	require.NoError(t, err)
	defer l.Close()
	file := filepath.Join(n.kubelet, "nri-gpu-gpu-3-abc.sock")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	k := fakekubelet.New(t, n.kubelet, modern())
	k.Start()
	n.list(gpus(1))
	n.run()
	k.Wait("one healthy device", listed(1))
	require.NoFileExists(t, dead)
	for _, kept := range []string{other, foreign, live, file} {
		require.FileExists(t, kept)
	}
}
