package static_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/static"
)

func TestAnEditTakesEffectAtTheNextSnapshot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "inventory.json")
	d := static.New(path)
	require.Equal(t, device.DriverFailed, d.Discover(t.Context()).Driver.State)
	require.Contains(t, d.Discover(t.Context()).Driver.Reason, path)

	want := device.Inventory{
		Driver: device.Driver{State: device.DriverReady, Version: "535.1"},
		GPUs:   []device.GPU{{UUID: "GPU-1", Health: device.Health{Healthy: true}}},
	}
	data, err := json.Marshal(want)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.Equal(t, want, d.Discover(t.Context()))
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"gpus":[{"uuid":"a"},{"uuid":"a"}]}`:                `"a" occurs twice`,
		`{"gpus":[{"uuid":"a","migDevices":[{"uuid":"a"}]}]}`: `"a" occurs twice`,
		`{"gpus":[{"index":1}]}`:                              "has no uuid",
		`{"gpus":[{"uuid":"a","minorr":1}]}`:                  "minorr",
		`{"gpus":[]} {}`:                                      "more follows",
		`{"gpus":[{"uuid":"a","index":"zero"}]}`:              "index",
		``:                                                    "EOF",
		`{"driver":{"state":"ready"},"gpus":[{"uuid":"a"}], "x": {}}`: `"x"`,
	} {
		_, err := static.Decode([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"driver":{"state":"ready"},"gpus":[{"uuid":"a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		inv, err := static.Decode(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(inv)
		require.NoError(t, err)
		_, err = static.Decode(again)
		require.NoError(t, err)
	})
}
