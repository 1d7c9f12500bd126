package cdi_test

import (
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

func keyring(tb testing.TB) *cdi.Keyring {
	tb.Helper()
	k, err := cdi.LoadOrCreateKeyring(filepath.Join(tb.TempDir(), "sub", "alloc.key"))
	require.NoError(tb, err)
	return k
}

func TestATokenIsTheGrantAndNothingElse(t *testing.T) {
	t.Parallel()
	k := keyring(t)
	grant := cdi.Grant{Resource: "nvidia.com/gpu", Names: []string{"nri-gpu.io/gpu=GPU-0"}}
	token, err := k.Sign(grant)
	require.NoError(t, err)
	again, err := k.Sign(grant)
	require.NoError(t, err)
	require.Equal(t, token, again)
	got, err := k.Verify(cdi.AnnotationKey("nvidia.com/gpu"), token)
	require.NoError(t, err)
	require.Equal(t, grant, got)

	parts := strings.Split(token, ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	changed := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(body), "GPU-0", "GPU-1", 1)))
	for name, bad := range map[string]string{
		"changed payload":    parts[0] + "." + changed + "." + parts[2],
		"no signature":       parts[0] + "." + parts[1] + ".",
		"cut":                token[:len(token)-3],
		"another version":    "v2" + token[2:],
		"empty":              "",
		"too long":           strings.Repeat("a", 70<<10),
		"padding":            token + "=",
		"four parts":         token + ".x",
		"payload not JSON":   "v1.AAAA." + parts[2],
		"payload two values": "v1." + base64.RawURLEncoding.EncodeToString([]byte("{}{}")) + "." + parts[2],
	} {
		_, err := k.Verify(cdi.AnnotationKey("nvidia.com/gpu"), bad)
		require.ErrorIs(t, err, cdi.ErrToken, name)
	}
}

func TestTwoProcessesMakeOneKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alloc.key")
	_, err := cdi.ReadKeyring(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	tokens := make([]string, 8)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			if k, err := cdi.LoadOrCreateKeyring(path); err == nil {
				tokens[i], _ = k.Sign(cdi.Grant{Resource: "r"})
			}
		})
	}
	wg.Wait()
	for _, tok := range tokens {
		require.NotEmpty(t, tok)
		require.Equal(t, tokens[0], tok)
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)

	require.NoError(t, os.WriteFile(path, []byte(`{"keys":[]}`), 0o600))
	_, err = cdi.LoadOrCreateKeyring(path)
	require.ErrorContains(t, err, "no signing key")
}

func TestKeysOfAnyResourceAreValid(t *testing.T) {
	t.Parallel()
	require.Equal(t, "alloc.nri-gpu.io/nvidia.com_gpu", cdi.AnnotationKey("nvidia.com/gpu"))
	long := cdi.AnnotationKey("example.com/" + strings.Repeat("x", 100))
	require.LessOrEqual(t, len(strings.TrimPrefix(long, cdi.AnnotationPrefix)), 63)
	require.NotEqual(t, long, cdi.AnnotationKey("example.com/"+strings.Repeat("x", 101)))
}

func TestTheCarrierFollowsTheRuntime(t *testing.T) {
	t.Parallel()
	for in, want := range map[cdi.Runtime]cdi.Carrier{
		{Name: "containerd", Version: "v2.4.2"}:        cdi.CarrierCDI,
		{Name: "containerd", Version: "2.3.0-rc.1"}:    cdi.CarrierCDI,
		{Name: "containerd", Version: "v2.2.9"}:        cdi.CarrierAnnotation,
		{Name: "containerd", Version: "v1.7.30"}:       cdi.CarrierAnnotation,
		{Name: "containerd", Version: "1.7.31~ds1+b1"}: cdi.CarrierAnnotation,
		{Name: "containerd", Version: "v1.7.29"}:       "",
		{Name: "containerd", Version: "v1.6.36"}:       "",
		{Name: "cri-o", Version: "1.34.1"}:             cdi.CarrierAnnotation,
		{Name: "cri-o", Version: "1.33.9"}:             "",
		{Name: "containerd", Version: "unknown"}:       cdi.CarrierAnnotation,
	} {
		got, err := cdi.ChooseCarrier(in)
		require.Equal(t, want, got, in)
		require.Equal(t, want == "", err != nil, in)
		if err != nil {
			require.ErrorContains(t, err, in.Version)
			continue
		}
		path := filepath.Join(t.TempDir(), "carrier.json")
		data, err := cdi.EncodeCarrier(got, in)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		read, err := cdi.ReadCarrier(path)
		require.NoError(t, err)
		require.Equal(t, want, read)
	}
}

func TestTheGuardIsASpecThatARuntimeReads(t *testing.T) {
	t.Parallel()
	require.Nil(t, cdi.GuardSpec(nil))
	data, err := cdi.EncodeSpec(cdi.GuardSpec([]string{"GPU-1", "GPU-0"}), cdi.JSON, "")
	require.NoError(t, err)
	spec, err := cdi.DecodeSpec(data)
	require.NoError(t, err)
	require.Equal(t, "GPU-0", spec.Devices[0].Name)
	require.Equal(t, cdi.GuardPath, spec.Devices[0].ContainerEdits.Mounts[0].ContainerPath)
	_, err = os.Stat(spec.Devices[0].ContainerEdits.Mounts[0].HostPath)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestDecodeSpecIsAsStrictAsARuntime(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"unknown field":   `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"env":["A=b"]}}],"extra":1}`,
		"no devices":      `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[]}`,
		"empty edits":     `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{}}]}`,
		"name twice":      `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"env":["A=b"]}},{"name":"x","containerEdits":{"env":["A=b"]}}]}`,
		"bad name":        `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x y","containerEdits":{"env":["A=b"]}}]}`,
		"bad kind":        `{"cdiVersion":"0.5.0","kind":"abc","devices":[{"name":"x","containerEdits":{"env":["A=b"]}}]}`,
		"version too low": `{"cdiVersion":"0.3.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"deviceNodes":[{"path":"/a","hostPath":"/b"}]}}]}`,
		"bad hook":        `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"hooks":[{"hookName":"never","path":"/x"}]}}]}`,
		"not JSON":        `{`,
		"nothing":         ``,
		"null":            `null`,
		"null nodes":      `{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"deviceNodes":[null]}}]}`,
		"null mounts":     `{"cdiVersion":"0.5.0","kind":"a.b/c","containerEdits":{"mounts":[null]},"devices":[{"name":"x","containerEdits":{"env":["A=b"]}}]}`,
	} {
		_, err := cdi.DecodeSpec([]byte(text))
		require.Error(t, err, name)
	}
}

func TestMergeHooksLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	ours := func(soname string) *specs.Hook {
		return &specs.Hook{HookName: "createContainer", Path: "/h", Args: hookargs.Args{Libraries: []hookargs.Library{{Path: "/l/" + soname, SONAME: soname}}}.Encode()}
	}
	foreign := &specs.Hook{HookName: "poststop", Path: "/x", Args: []string{"x"}}
	first := ours("a")
	before := len(first.Args)
	merged := cdi.MergeHooks([]*specs.Hook{first, foreign, ours("b"), ours("a")})
	require.Len(t, merged, 2)
	require.Same(t, foreign, merged[1])
	args, _, err := hookargs.Decode(merged[0].Args)
	require.NoError(t, err)
	require.Len(t, args.Libraries, 2)
	require.Len(t, first.Args, before, "what the spec holds is shared and not changed")
}

func FuzzParseName(f *testing.F) {
	f.Add("nri-gpu.io/gpu=GPU-0")
	f.Add("nri-gpu.io/gpu=MIG-GPU-0_1_0")
	f.Add("/=")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := cdi.ParseName(s)
		if err == nil {
			require.Equal(t, s, n.String())
		}
	})
}

func FuzzVerify(f *testing.F) {
	k := keyring(f)
	token, err := k.Sign(cdi.Grant{Resource: "nvidia.com/gpu", Names: []string{"nri-gpu.io/gpu=GPU-0"}})
	require.NoError(f, err)
	f.Add(token)
	f.Add("v1.e30.")
	f.Fuzz(func(t *testing.T, s string) {
		_, err := k.Verify(cdi.AnnotationKey("nvidia.com/gpu"), s)
		require.Equal(t, s == token, err == nil, "only what was signed is believed")
	})
}

func FuzzDecodeSpec(f *testing.F) {
	f.Add([]byte(`{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"env":["A=b"]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := cdi.DecodeSpec(data)
		if err != nil {
			return
		}
		_, err = cdi.EncodeSpec(spec, cdi.JSON, "")
		require.NoError(t, err)
	})
}
