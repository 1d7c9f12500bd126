// Package hookargs is the command line of gpu-hook, shared by those who write
// it into CDI specs, those who merge several into one, and the hook itself. It
// imports nothing but the standard library so that the hook starts fast.
//
// A command line is: gpu-hook createContainer [--link PATH=TARGET]...
// [--library PATH=SONAME]... [--library32 PATH=SONAME]... The order within each is kept. Paths are the container's.
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

	linkFlag      = "--link"
	libraryFlag   = "--library"
	library32Flag = "--library32"
)

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
	Links     []Link
	Libraries []Library
}

// Encode returns the whole argument vector, argv[0] included.
func (a Args) Encode() []string {
	out := []string{Program, Command}
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
		case linkFlag:
			args.Links = append(args.Links, Link{Path: key, Target: value})
		case libraryFlag, library32Flag:
			args.Libraries = append(args.Libraries, Library{Path: key, SONAME: value, Is32Bit: rest[0] == library32Flag})
		default:
			unknown = append(unknown, rest[0], rest[1])
			continue
		}
		if !ok || value == "" || !strings.HasPrefix(key, "/") {
			return Args{}, nil, fmt.Errorf("value %q of %s is not /path=text", rest[1], rest[0])
		}
	}
	return args, unknown, nil
}

// IsHook tells whether an argument vector is a command line of this package.
func IsHook(argv []string) bool {
	return len(argv) >= 2 && argv[0] == Program && argv[1] == Command
}

// Merge joins command lines into one; what is there twice is kept once, in the
// order of its first appearance.
func Merge(all ...Args) Args {
	var out Args
	for _, a := range all {
		for _, l := range a.Links {
			if !slices.Contains(out.Links, l) {
				out.Links = append(out.Links, l)
			}
		}
		for _, l := range a.Libraries {
			if !slices.Contains(out.Libraries, l) {
				out.Libraries = append(out.Libraries, l)
			}
		}
	}
	return out
}
