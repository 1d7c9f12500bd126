// Command gpu-hook is the OCI createContainer hook of containers with a GPU. A
// runtime starts it with the arguments of pkg/cdi/hookargs and the container's
// state on its standard input; internal/hook does the work.
//
// It is static, reads no environment and starts no program. Flags that it does
// not know are passed over with a warning, so that an older hook serves a newer
// spec.
package main

import (
	"fmt"
	"os"

	"github.com/nri-gpu/nri-gpu/internal/hook"
	"github.com/nri-gpu/nri-gpu/pkg/cdi/hookargs"
)

func main() {
	os.Clearenv()
	if err := run(); err != nil {
		warn("%v", err)
		os.Exit(1)
	}
}

func run() error {
	args, unknown, err := hookargs.Decode(os.Args)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if len(unknown) > 0 {
		warn("passing over %q, of a newer version", unknown)
	}
	root, err := hook.Root(os.Stdin)
	if err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return hook.Apply(root, args, warn)
}

func warn(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gpu-hook: "+format+"\n", args...)
}
