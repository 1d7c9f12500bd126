// Package fakeroot makes driver roots without a driver: libraries that a real
// loader opens, in the layouts of the distributions.
package fakeroot

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
)

// Library returns a shared object with a SONAME and nothing in it: glibc's
// loader opens it and ldconfig lists it. With is32Bit it is of the 32-bit x86
// architecture, which debug/elf and ldconfig tell apart by its header.
func Library(soname string, is32Bit bool) []byte {
	if is32Bit {
		return build32(soname)
	}
	return build64(soname)
}

// table is a string table: an empty string, the SONAME, and section names.
func table(soname string) (data []byte, at map[string]uint32) {
	at = map[string]uint32{}
	data = []byte{0}
	for _, s := range []string{soname, ".dynstr", ".dynamic"} {
		at[s] = uint32(len(data))
		data = append(append(data, s...), 0)
	}
	for len(data)%8 != 0 {
		data = append(data, 0)
	}
	return data, at
}

func machine() elf.Machine {
	if runtime.GOARCH == "arm64" {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

func ident(class elf.Class) (id [elf.EI_NIDENT]byte) {
	copy(id[:], elf.ELFMAG)
	id[elf.EI_CLASS], id[elf.EI_DATA], id[elf.EI_VERSION] = byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	return id
}

// write lays values out one behind the other; all are of fixed size.
func write(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		_ = binary.Write(&b, binary.LittleEndian, v) // a bytes.Buffer takes everything of fixed size
	}
	return b.Bytes()
}

// build64 lays out: header, three program headers, dynamic section, one null
// symbol, an empty hash table, the strings, three section headers.
func build64(soname string) []byte {
	const head, prog, dyn, sym, sect = 64, 56, 16, 24, 64
	strings, at := table(soname)
	dynAt := uint64(head + 3*prog)
	symAt := dynAt + 7*dyn
	hashAt := symAt + sym
	strAt := hashAt + 16
	end := strAt + uint64(len(strings))
	dynamic := []elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: uint64(at[soname])},
		{Tag: int64(elf.DT_STRTAB), Val: strAt},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(strings))},
		{Tag: int64(elf.DT_SYMTAB), Val: symAt},
		{Tag: int64(elf.DT_SYMENT), Val: sym},
		{Tag: int64(elf.DT_HASH), Val: hashAt},
		{},
	}
	return write(
		elf.Header64{
			Ident: ident(elf.ELFCLASS64), Type: uint16(elf.ET_DYN), Machine: uint16(machine()), Version: 1, Phoff: head, Shoff: end,
			Ehsize: head, Phentsize: prog, Phnum: 3, Shentsize: sect, Shnum: 3, Shstrndx: 1,
		},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Filesz: end, Memsz: end, Align: 0x1000},
		elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R | elf.PF_W), Off: dynAt, Vaddr: dynAt, Paddr: dynAt, Filesz: 7 * dyn, Memsz: 7 * dyn, Align: 8},
		elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
		dynamic, elf.Sym64{}, [4]uint32{1, 1, 0, 0}, strings,
		elf.Section64{},
		elf.Section64{Name: at[".dynstr"], Type: uint32(elf.SHT_STRTAB), Flags: uint64(elf.SHF_ALLOC), Addr: strAt, Off: strAt, Size: uint64(len(strings)), Addralign: 1},
		elf.Section64{Name: at[".dynamic"], Type: uint32(elf.SHT_DYNAMIC), Flags: uint64(elf.SHF_ALLOC), Addr: dynAt, Off: dynAt, Size: 7 * dyn, Link: 1, Addralign: 8, Entsize: dyn},
	)
}

func build32(soname string) []byte {
	const head, prog, dyn, sym, sect = 52, 32, 8, 16, 40
	strings, at := table(soname)
	dynAt := uint32(head + 3*prog)
	symAt := dynAt + 7*dyn
	hashAt := symAt + sym
	strAt := hashAt + 16
	end := strAt + uint32(len(strings))
	dynamic := []elf.Dyn32{
		{Tag: int32(elf.DT_SONAME), Val: at[soname]},
		{Tag: int32(elf.DT_STRTAB), Val: strAt},
		{Tag: int32(elf.DT_STRSZ), Val: uint32(len(strings))},
		{Tag: int32(elf.DT_SYMTAB), Val: symAt},
		{Tag: int32(elf.DT_SYMENT), Val: sym},
		{Tag: int32(elf.DT_HASH), Val: hashAt},
		{},
	}
	return write(
		elf.Header32{
			Ident: ident(elf.ELFCLASS32), Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_386), Version: 1, Phoff: head, Shoff: end,
			Ehsize: head, Phentsize: prog, Phnum: 3, Shentsize: sect, Shnum: 3, Shstrndx: 1,
		},
		elf.Prog32{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Filesz: end, Memsz: end, Align: 0x1000},
		elf.Prog32{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R | elf.PF_W), Off: dynAt, Vaddr: dynAt, Paddr: dynAt, Filesz: 7 * dyn, Memsz: 7 * dyn, Align: 4},
		elf.Prog32{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
		dynamic, elf.Sym32{}, [4]uint32{1, 1, 0, 0}, strings,
		elf.Section32{},
		elf.Section32{Name: at[".dynstr"], Type: uint32(elf.SHT_STRTAB), Flags: uint32(elf.SHF_ALLOC), Addr: strAt, Off: strAt, Size: uint32(len(strings)), Addralign: 1},
		elf.Section32{Name: at[".dynamic"], Type: uint32(elf.SHT_DYNAMIC), Flags: uint32(elf.SHF_ALLOC), Addr: dynAt, Off: dynAt, Size: 7 * dyn, Link: 1, Addralign: 4, Entsize: dyn},
	)
}
