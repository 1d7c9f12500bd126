package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// pciConfig is a configuration space with a power management capability at
// 0x60 that is followed by the given bytes at 0x68.
func pciConfig(capability ...byte) []byte {
	c := make([]byte, 256)
	c[pciStatus] = pciHasCapabilities
	c[pciCapabilityList] = 0x60
	c[0x60], c[0x61] = 0x01, 0x68
	copy(c[0x68:], capability)
	return c
}

// vgpuConfig is that of a virtual GPU whose hypervisor runs 535.161.05.
func vgpuConfig(first ...byte) []byte {
	record := append(slices.Clone(first), 0, 22)
	record = append(record, "535.161.05r538_10\x00\x00\x00"...)
	return pciConfig(append([]byte{pciCapabilityVendor, 0, byte(5 + len(record)), 'V', 'F'}, record...)...)
}

func TestAVirtualGPUTellsItsHostsDriver(t *testing.T) {
	t.Parallel()
	want := &device.VGPU{Present: true, HostDriverVersion: "535.161.05", HostDriverBranch: "r538_10"}
	require.Equal(t, want, parseVGPU(vgpuConfig()))
	require.Equal(t, want, parseVGPU(vgpuConfig(7, 4, 1, 2)), "after another record")

	r := roots.Roots{Host: t.TempDir()}
	file := r.Sys("bus", "pci", "devices", "0000:07:00.0", "config")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, vgpuConfig(), 0o600))
	require.Equal(t, want, VGPU(r, "0000:07:00.0"))
}

func TestAPhysicalGPUIsNoVirtualOne(t *testing.T) {
	t.Parallel()
	require.Equal(t, &device.VGPU{}, parseVGPU(make([]byte, 64)), "no capability at all")
	require.Equal(t, &device.VGPU{}, parseVGPU(pciConfig(0x10, 0)))
	require.Equal(t, &device.VGPU{}, parseVGPU(pciConfig(pciCapabilityVendor, 0, 8, 'N', 'V')), "another vendor capability")
}

func TestWhatCannotBeReadIsUnknown(t *testing.T) {
	t.Parallel()
	require.Nil(t, VGPU(roots.Roots{Host: t.TempDir()}, "0000:07:00.0"))
	require.Nil(t, VGPU(roots.Roots{Host: t.TempDir()}, ""))
	require.Nil(t, parseVGPU(vgpuConfig()[:64]), "what everybody may read ends before the capabilities")
	loop := pciConfig(0x10, 0x60)
	require.Nil(t, parseVGPU(loop), "a list without an end")
	require.Nil(t, parseVGPU(slices.Repeat([]byte{0xff}, 256)), "a card that fell off the bus")
}

func TestARecordWithoutLengthEndsTheWalk(t *testing.T) {
	t.Parallel()
	require.Equal(t, &device.VGPU{Present: true}, parseVGPU(vgpuConfig(7, 0)))
	require.Equal(t, &device.VGPU{Present: true}, parseVGPU(vgpuConfig(7, 1)))
	require.Equal(t, &device.VGPU{Present: true}, parseVGPU(vgpuConfig(7, 255)))
}

func TestPCIClassIsWhatSysfsSays(t *testing.T) {
	t.Parallel()
	r := roots.Roots{Host: t.TempDir()}
	require.Empty(t, PCIClass(r, "0000:07:00.0"))
	file := r.Sys("bus", "pci", "devices", "0000:07:00.0", "class")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("0x030200\n"), 0o600))
	require.Equal(t, "0x030200", PCIClass(r, "0000:07:00.0"))
}

func FuzzVGPU(f *testing.F) {
	f.Add(vgpuConfig())
	f.Add(vgpuConfig(7, 0))
	f.Add(pciConfig(0x10, 0x60))
	f.Fuzz(func(t *testing.T, config []byte) {
		if v := parseVGPU(config); v != nil && !v.Present {
			require.Equal(t, device.VGPU{}, *v)
		}
	})
}
