// Package hookargs is the command line of gpu-hook, shared by those who write
// it into CDI specs, those who merge several into one, and the hook itself. It
// imports nothing but the standard library so that the hook starts fast.
//
// A command line is: gpu-hook createContainer [--mount PATH=SOURCE]...
// [--optional-mount PATH=SOURCE]... [--socket PATH=SOURCE]...
// [--link PATH=TARGET]... [--library PATH=SONAME]...
// [--library32 PATH=SONAME]... The order within each is kept. A PATH is the
// container's, a SOURCE the host's.
package hookargs

import (
	"fmt"
	"slices"
	"strings"
)

// Program is argv[0] of the hook, and Command the one thing it does.
const (
	Program = "gpu-hook"
	Command = "createContainer"

	mountFlag         = "--mount"
	optionalMountFlag = "--optional-mount"
	socketFlag        = "--socket"
	linkFlag          = "--link"
	libraryFlag       = "--library"
	library32Flag     = "--library32"
)

// MountKind says with which options a mount is made, and what becomes of the
// container where a volume of the pod's is in the mount's place.
type MountKind string

// The kinds of mounts.
const (
	// MountRequired is read-only, and the container does not start without it.
	MountRequired MountKind = mountFlag
	// MountOptional is read-only, and gives way to a volume.
	MountOptional MountKind = optionalMountFlag
	// MountSocket can be written and not executed, and gives way to a volume.
	MountSocket MountKind = socketFlag
)

// Mount is a file or directory of the host to mount in the container.
type Mount struct {
	// Path is where it lies in the container, absolute.
	Path string
	// Source is the host's path, absolute.
	Source string
	Kind   MountKind
}

// Link is a symbolic link to make in the container.
type Link struct {
	// Path is where the link lies, absolute.
	Path string
	// Target is the link's text. A link whose target does not exist in the
	// container is not made.
	Target string
}

// Library is a driver library that is mounted into the container.
type Library struct {
	// Path is the library's absolute path in the container.
	Path string
	// SONAME is the name that the loader looks for (DT_SONAME).
	SONAME string
	// Is32Bit says that it is of the machine's 32-bit architecture.
	Is32Bit bool
}

// Args is the decoded command line.
type Args struct {
	Mounts    []Mount
	Links     []Link
	Libraries []Library
}

// Encode returns the whole argument vector, argv[0] included.
func (a Args) Encode() []string {
	out := []string{Program, Command}
	for _, m := range a.Mounts {
		out = append(out, string(m.Kind), m.Path+"="+m.Source)
	}
	for _, l := range a.Links {
		out = append(out, linkFlag, l.Path+"="+l.Target)
	}
	for _, l := range a.Libraries {
		flag := libraryFlag
		if l.Is32Bit {
			flag = library32Flag
		}
		out = append(out, flag, l.Path+"="+l.SONAME)
	}
	return out
}

// Decode reads what Encode wrote. Flags that it does not know are returned,
// with their value, so that an older hook can serve a newer spec.
func Decode(argv []string) (args Args, unknown []string, err error) {
	if len(argv) < 2 || argv[1] != Command {
		return Args{}, nil, fmt.Errorf("expected %q as the first argument, got %q", Command, argv)
	}
	for rest := argv[2:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			return Args{}, nil, fmt.Errorf("flag %q has no value", rest[0])
		}
		key, value, ok := strings.Cut(rest[1], "=")
		switch rest[0] {
		case mountFlag, optionalMountFlag, socketFlag:
			args.Mounts = append(args.Mounts, Mount{Path: key, Source: value, Kind: MountKind(rest[0])})
			ok = ok && strings.HasPrefix(value, "/")
		case linkFlag:
			args.Links = append(args.Links, Link{Path: key, Target: value})
		case libraryFlag, library32Flag:
			args.Libraries = append(args.Libraries, Library{Path: key, SONAME: value, Is32Bit: rest[0] == library32Flag})
		default:
			unknown = append(unknown, rest[0], rest[1])
			continue
		}
		if !ok || value == "" || !strings.HasPrefix(key, "/") {
			return Args{}, nil, fmt.Errorf("value %q of %s is not /path=text, with a path as the text of a mount", rest[1], rest[0])
		}
	}
	return args, unknown, nil
}

// IsHook tells whether an argument vector is a command line of this package.
func IsHook(argv []string) bool {
	return len(argv) >= 2 && argv[0] == Program && argv[1] == Command
}

// Merge joins command lines into one; what is there twice is kept once, in the
// order of its first appearance, and a path is mounted once.
func Merge(all ...Args) Args {
	var out Args
	for _, a := range all {
		for _, m := range a.Mounts {
			if !slices.ContainsFunc(out.Mounts, func(n Mount) bool { return n.Path == m.Path }) {
				out.Mounts = append(out.Mounts, m)
			}
		}
		out.Links = join(out.Links, a.Links)
		out.Libraries = join(out.Libraries, a.Libraries)
	}
	return out
}

func join[T comparable](to, from []T) []T {
	for _, v := range from {
		if !slices.Contains(to, v) {
			to = append(to, v)
		}
	}
	return to
}
