package hookargs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

func sample() hookargs.Args {
	return hookargs.Args{
		Mounts: []hookargs.Mount{
			{Path: "/usr/lib/libcuda.so.535.1", Source: "/opt/driver/a=b/libcuda.so.535.1", Kind: hookargs.MountRequired},
			{Path: "/usr/bin/nvidia-smi", Source: "/usr/bin/nvidia-smi", Kind: hookargs.MountOptional},
			{Path: "/run/nvidia-persistenced/socket", Source: "/run/nvidia-persistenced/socket", Kind: hookargs.MountSocket},
		},
		Links:     []hookargs.Link{{Path: "/usr/lib/libcuda.so", Target: "libcuda.so.1"}, {Path: "/dev/dri/by-path/pci-0000:07:00.0-card", Target: "../card0"}},
		Libraries: []hookargs.Library{{Path: "/usr/lib/libcuda.so.535.1", SONAME: "libcuda.so.1"}, {Path: "/usr/lib32/libcuda.so.535.1", SONAME: "libcuda.so.1", Is32Bit: true}},
	}
}

func TestDecodeReadsWhatEncodeWrote(t *testing.T) {
	t.Parallel()
	argv := sample().Encode()
	require.True(t, hookargs.IsHook(argv))
	got, unknown, err := hookargs.Decode(argv)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Equal(t, sample(), got)
}

func TestDecodeReturnsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	argv := append(sample().Encode(), "--future", "x")
	got, unknown, err := hookargs.Decode(argv)
	require.NoError(t, err)
	require.Equal(t, []string{"--future", "x"}, unknown)
	require.Equal(t, sample(), got)
}

func TestDecodeRefusesWhatIsNotACommandLine(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"nothing":                     nil,
		"another command":             {"gpu-hook", "poststop"},
		"a flag without a value":      {"gpu-hook", "createContainer", "--link"},
		"a link without a target":     {"gpu-hook", "createContainer", "--link", "/a"},
		"a link with an empty target": {"gpu-hook", "createContainer", "--link", "/a="},
		"a relative path":             {"gpu-hook", "createContainer", "--library", "a=b"},
		"a mount without a source":    {"gpu-hook", "createContainer", "--mount", "/a"},
		"a relative source":           {"gpu-hook", "createContainer", "--socket", "/a=b"},
	} {
		_, _, err := hookargs.Decode(argv)
		require.Error(t, err, name)
	}
}

func TestMergeKeepsTheOrderAndEachOnce(t *testing.T) {
	t.Parallel()
	extra := hookargs.Args{Links: []hookargs.Link{{Path: "/x", Target: "y"}}}
	merged := hookargs.Merge(sample(), extra, sample())
	require.Equal(t, append(sample().Links, extra.Links...), merged.Links)
	require.Equal(t, sample().Libraries, merged.Libraries)
	require.Equal(t, sample().Mounts, merged.Mounts)
	again := hookargs.Args{Mounts: []hookargs.Mount{{Path: "/usr/bin/nvidia-smi", Source: "/elsewhere", Kind: hookargs.MountRequired}}}
	require.Equal(t, sample().Mounts, hookargs.Merge(sample(), again).Mounts, "a path is mounted once")
}

func FuzzDecode(f *testing.F) {
	f.Add("--link", "/a=b")
	f.Add("--library", "/a=b=c")
	f.Add("--library32", "/a=b")
	f.Add("--mount", "/a=/b")
	f.Add("--optional-mount", "/a=/b=c")
	f.Add("--socket", "/a=b")
	f.Add("--new", "")
	f.Fuzz(func(t *testing.T, flag, value string) {
		args, unknown, err := hookargs.Decode([]string{hookargs.Program, hookargs.Command, flag, value})
		if err != nil || len(unknown) > 0 {
			return
		}
		again, _, err := hookargs.Decode(args.Encode())
		require.NoError(t, err)
		require.Equal(t, args, again)
	})
}
