package features_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery/nvml"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/testutil/fakelib"
	"github.com/nri-gpu/nri-gpu/internal/testutil/golden"
)

// TestMain is also the NVML worker: the test binary runs itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == nvml.WorkerCommand {
		if err := nvml.Serve(os.Args[2], nvml.GPUDeadline, os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	library = filepath.Join(dir, "libnvidia-ml.so.1")
	if err := fakelib.Build(context.Background(), library); err != nil {
		panic(err)
	}
	m.Run()
}

var library string

// discover asks the fake library, through go-nvml, about a machine whose cards
// are 3D controllers.
func discover(t *testing.T, config fakelib.Config) device.Inventory {
	t.Helper()
	host := t.TempDir()
	path := filepath.Join(t.TempDir(), "fake.json")
	require.NoError(t, config.Write(path))
	devices, _ := config["devices"].([]any)
	for i := range devices {
		bus, _ := config.Device(i)["bus_id"].(string)
		dir := filepath.Join(host, "sys/bus/pci/devices", strings.ToLower(strings.TrimPrefix(bus, "0000")))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "class"), []byte("0x030200\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config"), make([]byte, 256), 0o600))
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	d := nvml.New(nvml.Options{
		Roots:    roots.Roots{Host: host},
		Library:  func() (string, error) { return library, nil },
		Command:  []string{"/usr/bin/env", "NRI_GPU_FAKE_NVML_CONFIG=" + path, exe, nvml.WorkerCommand},
		Deadline: 10 * time.Second,
	})
	defer d.Close()
	inv := d.Discover(t.Context())
	for i := range inv.GPUs {
		for j := range inv.GPUs[i].MIGDevices {
			inv.GPUs[i].MIGDevices[j].Health = device.Health{Healthy: true} // the tree has no capabilities
		}
	}
	return inv
}

func profile(t *testing.T, name string) fakelib.Config {
	t.Helper()
	config, err := fakelib.Load(name)
	require.NoError(t, err)
	return config
}

// migCards is a machine of so many cards, each of the given MIG profiles.
func migCards(cards int, profiles ...string) fakelib.Config {
	var devices []any
	for i := range cards {
		var mig []any
		for j, p := range profiles {
			mig = append(mig, map[string]any{"uuid": fmt.Sprintf("MIG-%d-%d", i, j), "profile": p, "gi": j + 1, "memory": 4864 << 20})
		}
		devices = append(devices, map[string]any{
			"uuid": fmt.Sprintf("GPU-%d", i), "bus_id": fmt.Sprintf("00000000:%02X:00.0", i+1), "minor": i,
			"mig_capable": 1, "mig_enabled": 1, "mig": mig,
		})
	}
	return fakelib.Config{"driver_version": "550.54", "cuda_version": 12040, "devices": devices}
}

func timeSlicing(replicas int) features.Sharing {
	return features.Sharing{Strategy: resources.TimeSlicing, Replicas: map[string]int{features.DefaultResource: replicas}}
}

func TestLabelsOfWholeMachines(t *testing.T) {
	t.Parallel()
	fabric := profile(t, "a100x8")
	for i := range 8 {
		fabric.Device(i)["fabric"] = map[string]any{"cluster": "0badc0de-0001-4000-8000-0000000000ff", "clique": 32766}
	}
	empty := profile(t, "t4x1")
	empty["devices"] = []any{}
	shared := timeSlicing(4)
	shared.MIGStrategy = resources.MIGMixed
	shared.Replicas["nvidia.com/mig-1g.10gb"] = 2
	for name, c := range map[string]struct {
		config  fakelib.Config
		sharing features.Sharing
	}{
		"a100x8":                    {profile(t, "a100x8"), features.Sharing{}},
		"a100x8-fabric":             {fabric, features.Sharing{Strategy: resources.MPS, Replicas: map[string]int{features.DefaultResource: 2}, MPSConfigured: true}},
		"h100x8-mig-none":           {profile(t, "h100x8-mig"), features.Sharing{MIGStrategy: resources.MIGNone}},
		"h100x8-mig-mixed":          {profile(t, "h100x8-mig"), features.Sharing{MIGStrategy: resources.MIGMixed}},
		"h100x8-mig-mixed-shared":   {profile(t, "h100x8-mig"), shared},
		"h100x8-mig-invalid":        {profile(t, "h100x8-mig"), features.Sharing{MIGStrategy: resources.MIGSingle}},
		"a100x2-mig-single":         {migCards(2, "1g.5gb", "1g.5gb", "1g.5gb"), features.Sharing{MIGStrategy: resources.MIGSingle}},
		"a100x1-mig-media-mixed":    {migCards(1, "1c.3g.20gb", "1g.5gb+me"), features.Sharing{MIGStrategy: resources.MIGMixed}},
		"mixed":                     {profile(t, "mixed"), features.Sharing{}},
		"mixed-shared":              {profile(t, "mixed"), timeSlicing(10)},
		"t4x1":                      {profile(t, "t4x1"), features.Sharing{}},
		"t4x1-shared-renamed":       {profile(t, "t4x1"), features.Sharing{Strategy: resources.TimeSlicing, Renamed: true, Replicas: timeSlicing(4).Replicas}},
		"t4x1-single-without-a-mig": {profile(t, "t4x1"), features.Sharing{MIGStrategy: resources.MIGSingle}},
		"no-gpu":                    {empty, features.Sharing{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inv := discover(t, c.config)
			golden.Equal(t, filepath.Join("testdata", name+".txt"), features.Encode(features.Labels(&inv, &c.sharing, "PowerEdge XE8545 (rev. 2)")))
		})
	}
}
