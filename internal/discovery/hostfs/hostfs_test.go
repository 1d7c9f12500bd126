package hostfs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

func TestParseVersionReadsBothFlavoursOfTheModule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Tue Nov  4 2025\nGCC version: gcc 12.2.0\n":                    "535.309.01",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@x)  Wed\nGCC version: 12.2.0 \n": "570.124.06",
		"nothing here": "",
		"":             "",
	} {
		require.Equal(t, want, parseVersion(text))
	}
}

func TestNormalizeBusID(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"00000000:07:00.0": "0000:07:00.0",
		"0000:4E:00.0":     "0000:4e:00.0",
		"00010000:01:00.0": "00010000:01:00.0",
		"":                 "",
	} {
		require.Equal(t, want, NormalizeBusID(in))
	}
}

func TestAnUninitialisedCardHasNoUUID(t *testing.T) {
	t.Parallel()
	card := parseInformation("Model: \t Tesla T4\nGPU UUID: \t GPU-????????-????-????-????-????????????\nBus Location: \t 0000:00:1E.0\nDevice Minor: \t 0\n")
	require.Equal(t, Card{Model: "Tesla T4", PCIBusID: "0000:00:1e.0", Minor: 0}, card)
}

func TestAbsentFilesMeanNothingKnown(t *testing.T) {
	t.Parallel()
	r := roots.Roots{Host: t.TempDir()}
	require.Empty(t, DriverVersion(r))
	require.Empty(t, Cards(r))
	require.False(t, HasNVIDIAGPU(r))
	require.Equal(t, -1, NUMANode(r, "0000:07:00.0"))
	require.Empty(t, DRMNodes(r, "0000:07:00.0"))
	require.Equal(t, -1, ReadMIGMinors(r).Instance(r, 0, 1, -1))
}

func FuzzMIGMinors(f *testing.F) {
	f.Add("config 1\nmonitor 2\ngpu0/gi1/access 12\n")
	f.Add("gpu0/gi1/access -1\ngpu0/gi1/access 99999999999\n x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, n := range ParseMIGMinors(text) {
			require.NotEmpty(t, name)
			require.GreaterOrEqual(t, n, 0)
			require.Less(t, n, 1<<20)
		}
	})
}

func FuzzInformation(f *testing.F) {
	f.Add("Model: x\nGPU UUID: GPU-1\nDevice Minor: -4\n")
	f.Fuzz(func(t *testing.T, text string) {
		require.GreaterOrEqual(t, parseInformation(text).Minor, -1)
	})
}
