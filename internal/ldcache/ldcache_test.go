package ldcache_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/ldcache"
)

func sample() ldcache.Cache {
	return ldcache.Cache{Entries: []ldcache.Entry{
		{Name: "libcuda.so.1", Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", Flags: ldcache.FlagELFLibc6 | ldcache.FlagX8664},
		{Name: "libcuda.so.1", Path: "/usr/lib/i386-linux-gnu/libcuda.so.1", Flags: ldcache.FlagELFLibc6 | ldcache.FlagI386},
		{Name: "libz.so.1", Path: "/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libz.so.1", Flags: 0x0303, HWCaps: "x86-64-v3"},
		{Name: "libz.so.1", Path: "/lib/x86_64-linux-gnu/libz.so.1", Flags: 0x0303},
		{Name: "libfoo.so.10", Path: "/lib/libfoo.so.10", Flags: 0x0303},
		{Name: "libfoo.so.9", Path: "/lib/libfoo.so.9", Flags: 0x0303},
	}}
}

func TestParseReadsWhatEncodeWrote(t *testing.T) {
	t.Parallel()
	got, err := ldcache.Parse(sample().Encode())
	require.NoError(t, err)
	require.ElementsMatch(t, sample().Entries, got.Entries)
	require.Equal(t, sample().Encode(), got.Encode(), "encoding is stable")
}

func TestTheHostsLdconfigReadsWhatWeWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ld.so.cache")
	require.NoError(t, os.WriteFile(path, sample().Encode(), 0o644))
	out, err := exec.CommandContext(t.Context(), "ldconfig", "-p", "-C", path).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "6 libs found")
	require.Contains(t, string(out), "libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1")
	require.Contains(t, string(out), "libcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1")
	require.Contains(t, string(out), `hwcap: "x86-64-v3"`)
}

func TestWeSortAsTheHostsLdconfigDoes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("/etc/ld.so.cache")
	require.NoError(t, err)
	want, err := ldcache.Parse(data)
	require.NoError(t, err)
	got, err := ldcache.Parse(want.Encode())
	require.NoError(t, err)
	require.Equal(t, want.Entries, got.Entries)
}

func TestMergedLibrariesComeFirstAndOnlyOnce(t *testing.T) {
	t.Parallel()
	ours := ldcache.Entry{Name: "libz.so.1", Path: "/driver/libz.so.1", Flags: 0x0303}
	merged := sample().Merge([]ldcache.Entry{ours})
	require.Len(t, merged.Entries, 7)
	require.Equal(t, merged.Encode(), merged.Merge([]ldcache.Entry{ours}).Encode())
	parsed, err := ldcache.Parse(merged.Encode())
	require.NoError(t, err)
	var paths []string
	for _, e := range parsed.Entries {
		if e.Name == "libz.so.1" && e.HWCaps == "" {
			paths = append(paths, e.Path)
		}
	}
	require.Equal(t, []string{"/driver/libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1"}, paths)
}

// old builds the format of glibc before 2.2, as ldconfig -c old writes it.
func old(entries []ldcache.Entry) []byte {
	out := append([]byte("ld.so-1.7.0"), 0)
	out = binary.NativeEndian.AppendUint32(out, uint32(len(entries)))
	var table strings.Builder
	for _, e := range entries {
		out = binary.NativeEndian.AppendUint32(out, e.Flags)
		for _, s := range []string{e.Name, e.Path} {
			out = binary.NativeEndian.AppendUint32(out, uint32(table.Len()))
			table.WriteString(s + "\x00")
		}
	}
	return append(out, table.String()...)
}

func TestOldAndCombinedFormatsAreRead(t *testing.T) {
	t.Parallel()
	entries := []ldcache.Entry{{Name: "liba.so.1", Path: "/lib/liba.so.1", Flags: 3}}
	got, err := ldcache.Parse(old(entries))
	require.NoError(t, err)
	require.Equal(t, entries, got.Entries)

	combined := old(nil)
	combined = append(combined, make([]byte, (8-len(combined)%8)%8)...)
	got, err = ldcache.Parse(append(combined, sample().Encode()...))
	require.NoError(t, err)
	require.Len(t, got.Entries, 6)
}

func TestDamagedFilesAreErrors(t *testing.T) {
	t.Parallel()
	whole := sample().Encode()
	for n := range len(whole) {
		_, err := ldcache.Parse(whole[:n])
		require.ErrorIs(t, err, ldcache.ErrFormat, "cut to %d bytes", n)
	}
	many := append([]byte(nil), whole...)
	binary.NativeEndian.PutUint32(many[20:], 1<<31)
	_, err := ldcache.Parse(many)
	require.ErrorIs(t, err, ldcache.ErrFormat)
	foreign := append([]byte(nil), whole...)
	foreign[28] = 3
	_, err = ldcache.Parse(foreign)
	require.ErrorIs(t, err, ldcache.ErrFormat)
}

func TestCompareNamesOrdersNumbersByValue(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"libfoo.so.9", "libfoo.so.10"}, {"liba", "libb"}, {"lib", "liba"}, {"liba", "lib1"}, {"lib", "lib1"}} {
		require.Negative(t, ldcache.CompareNames(c[0], c[1]), c)
		require.Positive(t, ldcache.CompareNames(c[1], c[0]), c)
	}
	require.Zero(t, ldcache.CompareNames("libc.so.6", "libc.so.6"))
}

func FuzzParse(f *testing.F) {
	f.Add(sample().Encode())
	f.Add(old(sample().Entries))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ldcache.Parse(data)
		if err != nil {
			require.ErrorIs(t, err, ldcache.ErrFormat)
			return
		}
		again, err := ldcache.Parse(c.Encode())
		require.NoError(t, err)
		require.Len(t, again.Entries, len(c.Entries))
	})
}
