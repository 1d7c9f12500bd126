package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	setting := func(kv ...string) []debug.BuildSetting {
		var out []debug.BuildSetting
		for i := 0; i < len(kv); i += 2 {
			out = append(out, debug.BuildSetting{Key: kv[i], Value: kv[i+1]})
		}
		return out
	}
	require.Equal(t, "v1.2.3", describe(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}))
	require.Equal(t, "abc", describe(&debug.BuildInfo{Settings: setting("vcs.revision", "abc", "vcs.modified", "false")}))
	require.Equal(t, "abc-dirty", describe(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: setting("vcs.revision", "abc", "vcs.modified", "true")}))
	require.Equal(t, "unknown", describe(&debug.BuildInfo{}))
}
