package roots_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

func TestPathsLieBelowTheirRoots(t *testing.T) {
	t.Parallel()
	r := roots.Roots{Dev: "/d", Host: "/h"}
	require.Equal(t, "/d/dev/nvidia0", r.DevPath("/dev/nvidia0"))
	require.Equal(t, "/h/proc/driver/nvidia/version", r.Proc("driver", "nvidia", "version"))
	require.Equal(t, "/h/sys/module", r.Sys("module"))
	require.Equal(t, "/dev/nvidia0", roots.Roots{}.DevPath("/dev/nvidia0"))
	require.Equal(t, "/proc/devices", roots.Roots{}.Proc("devices"))
}

func TestMappingTakesTheLongestWholePrefix(t *testing.T) {
	t.Parallel()
	m, err := roots.ParseMapping([]string{"/host=/", "/driver=/run/nvidia/driver", "/driver/etc/=/etc"})
	require.NoError(t, err)
	for in, want := range map[string]string{
		"/host/usr/lib/x":   "/usr/lib/x",
		"/driver":           "/run/nvidia/driver",
		"/driver/lib/x":     "/run/nvidia/driver/lib/x",
		"/driver/etc/x":     "/etc/x",
		"/driver-root/x":    "/driver-root/x",
		"/elsewhere/driver": "/elsewhere/driver",
	} {
		require.Equal(t, want, m.ToHost(in), in)
	}
}

func TestFromHostIsTheInverse(t *testing.T) {
	t.Parallel()
	m, err := roots.ParseMapping([]string{"/host=/", "/driver=/run/nvidia/driver"})
	require.NoError(t, err)
	require.Equal(t, "/driver/lib/x", m.FromHost("/run/nvidia/driver/lib/x"))
	require.Equal(t, "/host/dev/nvidia0", m.FromHost("/dev/nvidia0"))
	require.Equal(t, "/dev/nvidia0", roots.Mapping(nil).FromHost("/dev/nvidia0"))
}

func TestMappingRefusesWhatIsNotTwoAbsolutePaths(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"", "/a", "a=/b", "/a=b", "="} {
		_, err := roots.ParseMapping([]string{entry})
		require.Error(t, err, entry)
	}
}
