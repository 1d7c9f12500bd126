// Package ldcache reads and writes /etc/ld.so.cache, the file in which glibc's
// loader looks up libraries by name.
//
// Parse reads what any glibc since 2.2 wrote: the old format, the new one
// (1.1), and the two in one file. Encode writes the new format with the
// glibc-hwcaps extension, sorted as the loader's binary search needs it. The
// layout is that of glibc's sysdeps/generic/dl-cache.h.
package ldcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Flags of an entry: the low byte is the kind of file, the next the
// architecture.
const (
	// FlagELFLibc6 is the kind of every ELF library of glibc 2.
	FlagELFLibc6 = 0x0003
	// FlagX8664 is the architecture of 64-bit x86 libraries.
	FlagX8664 = 0x0300
	// FlagAArch64 is the architecture of 64-bit ARM libraries.
	FlagAArch64 = 0x0a00
	// FlagI386 is the architecture of 32-bit x86 libraries.
	FlagI386 = 0x0000
	// FlagARMHardFloat is the architecture of 32-bit ARM libraries.
	FlagARMHardFloat = 0x0900
)

const (
	oldMagic      = "ld.so-1.7.0"
	newMagic      = "glibc-ld.so.cache1.1"
	oldHeaderSize = 16
	oldEntrySize  = 12
	newHeaderSize = 48
	newEntrySize  = 24

	// hwcapExtension marks an entry whose low 32 bits of hwcap are an index
	// into the glibc-hwcaps names (DL_CACHE_HWCAP_EXTENSION).
	hwcapExtension = uint64(1) << 62

	extensionMagic = 0xeaa42174 // cache_extension_magic
	tagHWCaps      = 1          // cache_extension_tag_glibc_hwcaps
	sectionSize    = 16
)

// Entry is one library.
type Entry struct {
	// Name is what the loader looks for, "libcuda.so.1".
	Name string
	// Path is where the library lies.
	Path string
	// Flags are the kind and the architecture.
	Flags uint32
	// OSVersion is the least kernel version, as older ldconfigs wrote it.
	OSVersion uint32
	// HWCap is the legacy hardware capability mask.
	HWCap uint64
	// HWCaps is the glibc-hwcaps subdirectory ("x86-64-v3"), or "".
	HWCaps string
}

// Cache is the decoded file.
type Cache struct{ Entries []Entry }

// ErrFormat is the error of a file that is not a cache, or not a whole one.
var ErrFormat = errors.New("not a valid ld.so.cache")

// Parse decodes a cache. Nothing is trusted: every offset is checked against
// the data before anything is allocated for it.
func Parse(data []byte) (Cache, error) {
	if bytes.HasPrefix(data, []byte(newMagic)) {
		return parseNew(data)
	}
	if !bytes.HasPrefix(data, []byte(oldMagic)) || len(data) < oldHeaderSize {
		return Cache{}, fmt.Errorf("%w: no magic number", ErrFormat)
	}
	count := uint64(binary.NativeEndian.Uint32(data[12:]))
	end := oldHeaderSize + count*oldEntrySize
	if end > uint64(len(data)) {
		return Cache{}, fmt.Errorf("%w: %d entries do not fit into %d bytes", ErrFormat, count, len(data))
	}
	// The new format may follow, aligned to its strictest member.
	if next := (end + 7) &^ 7; next < uint64(len(data)) && bytes.HasPrefix(data[next:], []byte(newMagic)) {
		return parseNew(data[next:])
	}
	return parseOld(data, int(count))
}

func parseOld(data []byte, count int) (Cache, error) {
	strings := data[oldHeaderSize+count*oldEntrySize:]
	c := Cache{Entries: make([]Entry, 0, count)}
	for i := range count {
		b := data[oldHeaderSize+i*oldEntrySize:]
		e := Entry{Flags: binary.NativeEndian.Uint32(b)}
		var err error
		if e.Name, err = text(strings, binary.NativeEndian.Uint32(b[4:])); err != nil {
			return Cache{}, err
		}
		if e.Path, err = text(strings, binary.NativeEndian.Uint32(b[8:])); err != nil {
			return Cache{}, err
		}
		c.Entries = append(c.Entries, e)
	}
	return c, nil
}

func parseNew(data []byte) (Cache, error) {
	if len(data) < newHeaderSize {
		return Cache{}, fmt.Errorf("%w: header is cut", ErrFormat)
	}
	// Byte 28: 0 unset, 2 little endian, 3 big endian (cache_file_new_flags).
	if order := data[28] & 3; order != 0 && (order == 3) != bigEndian() {
		return Cache{}, fmt.Errorf("%w: of another byte order", ErrFormat)
	}
	count := uint64(binary.NativeEndian.Uint32(data[20:]))
	if newHeaderSize+count*newEntrySize > uint64(len(data)) {
		return Cache{}, fmt.Errorf("%w: %d entries do not fit into %d bytes", ErrFormat, count, len(data))
	}
	names, err := hwcapNames(data, binary.NativeEndian.Uint32(data[32:]))
	if err != nil {
		return Cache{}, err
	}
	c := Cache{Entries: make([]Entry, 0, count)}
	for i := range int(count) {
		e, err := parseEntry(data, data[newHeaderSize+i*newEntrySize:], names)
		if err != nil {
			return Cache{}, err
		}
		c.Entries = append(c.Entries, e)
	}
	return c, nil
}

func parseEntry(data, b []byte, names []string) (Entry, error) {
	e := Entry{
		Flags:     binary.NativeEndian.Uint32(b),
		OSVersion: binary.NativeEndian.Uint32(b[12:]),
		HWCap:     binary.NativeEndian.Uint64(b[16:]),
	}
	var err error
	if e.Name, err = text(data, binary.NativeEndian.Uint32(b[4:])); err != nil {
		return Entry{}, err
	}
	if e.Path, err = text(data, binary.NativeEndian.Uint32(b[8:])); err != nil {
		return Entry{}, err
	}
	if e.HWCap>>62 == 1 { // glibc tests the top bits so (dl_cache_hwcap_extension)
		index := uint32(e.HWCap)
		if uint64(index) >= uint64(len(names)) {
			return Entry{}, fmt.Errorf("%w: %q has an unknown glibc-hwcaps index", ErrFormat, e.Name)
		}
		e.HWCaps, e.HWCap = names[index], 0
	}
	return e, nil
}

// hwcapNames reads the glibc-hwcaps section of the extension directory.
func hwcapNames(data []byte, offset uint32) ([]string, error) {
	if offset == 0 {
		return nil, nil
	}
	if uint64(offset)+8 > uint64(len(data)) || binary.NativeEndian.Uint32(data[offset:]) != extensionMagic {
		return nil, fmt.Errorf("%w: bad extension directory", ErrFormat)
	}
	count := uint64(binary.NativeEndian.Uint32(data[offset+4:]))
	start := uint64(offset) + 8
	if start+count*sectionSize > uint64(len(data)) {
		return nil, fmt.Errorf("%w: extension directory is cut", ErrFormat)
	}
	for i := range count {
		s := data[start+i*sectionSize:]
		if binary.NativeEndian.Uint32(s) == tagHWCaps {
			return sectionNames(data, binary.NativeEndian.Uint32(s[8:]), binary.NativeEndian.Uint32(s[12:]))
		}
	}
	return nil, nil
}

func sectionNames(data []byte, offset, size uint32) ([]string, error) {
	if uint64(offset)+uint64(size) > uint64(len(data)) || size%4 != 0 {
		return nil, fmt.Errorf("%w: bad glibc-hwcaps section", ErrFormat)
	}
	names := make([]string, 0, size/4)
	for b := data[offset : offset+size]; len(b) > 0; b = b[4:] {
		name, err := text(data, binary.NativeEndian.Uint32(b))
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func text(table []byte, offset uint32) (string, error) {
	if uint64(offset) >= uint64(len(table)) {
		return "", fmt.Errorf("%w: string offset %d is outside", ErrFormat, offset)
	}
	end := bytes.IndexByte(table[offset:], 0)
	if end < 0 {
		return "", fmt.Errorf("%w: string at %d does not end", ErrFormat, offset)
	}
	return string(table[offset : int(offset)+end]), nil
}

func bigEndian() bool {
	return binary.NativeEndian.Uint16([]byte{0, 1}) == 1
}
