package ldcache

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Merge returns a cache in which the added libraries come before those of the
// same name, so that the loader finds them first. What was there stays.
func (c Cache) Merge(added []Entry) Cache {
	out := slices.Clone(added)
	for _, e := range c.Entries {
		if !slices.Contains(added, e) {
			out = append(out, e)
		}
	}
	return Cache{Entries: out}
}

// Encode writes the new format. Entries of one name and architecture keep
// their order; otherwise they are sorted as ldconfig does.
func (c Cache) Encode() []byte {
	entries := slices.Clone(c.Entries)
	slices.SortStableFunc(entries, order)
	var names []string
	for _, e := range entries {
		if e.HWCaps != "" && !slices.Contains(names, e.HWCaps) {
			names = append(names, e.HWCaps)
		}
	}
	// The loader expects the names sorted (glibc's dl_hwcaps_split order).
	slices.Sort(names)
	w := &writer{offsets: map[string]uint32{}, base: uint32(newHeaderSize + len(entries)*newEntrySize)}
	body := w.body(entries, names)
	return w.file(len(entries), body, names)
}

// order is ldconfig's: names descending, then higher flags first, then
// glibc-hwcaps before plain entries.
func order(a, b Entry) int {
	if c := CompareNames(b.Name, a.Name); c != 0 {
		return c
	}
	if a.Flags != b.Flags {
		return int(int64(b.Flags) - int64(a.Flags))
	}
	switch {
	case a.HWCaps != "" && b.HWCaps == "":
		return -1
	case a.HWCaps == "" && b.HWCaps != "":
		return 1
	}
	return 0
}

type writer struct {
	strings bytes.Buffer
	offsets map[string]uint32
	base    uint32 // where the string table starts
}

func (w *writer) text(s string) uint32 {
	if at, ok := w.offsets[s]; ok {
		return at
	}
	at := w.base + uint32(w.strings.Len())
	w.offsets[s] = at
	w.strings.WriteString(s)
	w.strings.WriteByte(0)
	return at
}

func (w *writer) body(entries []Entry, names []string) []byte {
	body := make([]byte, 0, len(entries)*newEntrySize)
	for _, e := range entries {
		hwcap := e.HWCap
		if e.HWCaps != "" {
			hwcap = hwcapExtension | uint64(slices.Index(names, e.HWCaps))
		}
		body = binary.NativeEndian.AppendUint32(body, e.Flags)
		body = binary.NativeEndian.AppendUint32(body, w.text(e.Name))
		body = binary.NativeEndian.AppendUint32(body, w.text(e.Path))
		body = binary.NativeEndian.AppendUint32(body, e.OSVersion)
		body = binary.NativeEndian.AppendUint64(body, hwcap)
	}
	return body
}

func (w *writer) file(count int, body []byte, names []string) []byte {
	var section []byte
	for _, n := range names {
		section = binary.NativeEndian.AppendUint32(section, w.text(n))
	}
	length := uint32(w.strings.Len())
	order := byte(2)
	if bigEndian() {
		order = 3
	}
	var extension uint32
	if len(names) > 0 {
		extension = (w.base + length + 3) &^ 3
	}
	out := append([]byte(nil), newMagic...)
	out = binary.NativeEndian.AppendUint32(out, uint32(count))
	out = binary.NativeEndian.AppendUint32(out, length)
	out = append(out, order, 0, 0, 0)
	out = binary.NativeEndian.AppendUint32(out, extension)
	out = append(out, make([]byte, newHeaderSize-len(out))...)
	out = append(out, body...)
	out = append(out, w.strings.Bytes()...)
	if extension == 0 {
		return out
	}
	out = append(out, make([]byte, int(extension)-len(out))...)
	out = binary.NativeEndian.AppendUint32(out, extensionMagic)
	out = binary.NativeEndian.AppendUint32(out, 1)
	for _, v := range []uint32{tagHWCaps, 0, extension + 8 + sectionSize, uint32(len(section))} {
		out = binary.NativeEndian.AppendUint32(out, v)
	}
	return append(out, section...)
}

// CompareNames is the order of glibc's _dl_cache_libcmp: runs of digits compare
// as numbers, and a digit comes after any other character.
func CompareNames(a, b string) int {
	for a != "" {
		da, db := digit(a), digit(b)
		switch {
		case da && db:
			var na, nb uint64
			na, a = number(a)
			nb, b = number(b)
			if na != nb {
				return sign(na > nb)
			}
		case da:
			return 1
		case db:
			return -1
		case b == "" || a[0] != b[0]:
			return sign(b == "" || a[0] > b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	if b == "" {
		return 0
	}
	return -1
}

func digit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// number wraps as C's arithmetic would; names are compared, never computed.
func number(s string) (n uint64, rest string) {
	for digit(s) {
		n = n*10 + uint64(s[0]-'0')
		s = s[1:]
	}
	return n, s
}

func sign(greater bool) int {
	if greater {
		return 1
	}
	return -1
}
