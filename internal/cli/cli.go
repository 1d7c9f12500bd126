// Package cli is what the programs have in common as programs: signals, exit
// statuses, and errors of the command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nri-gpu/nri-gpu/internal/config"
)

// Exit statuses.
const (
	statusFailure = 1
	// statusUsage is for what the user must correct before a restart can help.
	statusUsage = 2
)

// ErrUsage marks a command line that cannot be used.
var ErrUsage = errors.New("see --help")

// Usage is an error of the command line.
func Usage(format string, args ...any) error {
	return fmt.Errorf("%w; %w", fmt.Errorf(format, args...), ErrUsage)
}

// Execute runs a command until it ends or a signal ends it, tells an error to
// stderr, and returns the exit status.
func Execute(cmd *cobra.Command, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", cmd.Name(), err)
	}
	return Status(err)
}

// Status is the exit status of an error.
func Status(err error) int {
	switch {
	case err == nil:
		return 0
	case config.IsError(err) || errors.Is(err, ErrUsage):
		return statusUsage
	}
	return statusFailure
}

// Prepare makes a command say its errors once, and in our way.
func Prepare(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage("%w", err) })
	return cmd
}

// NoArgs refuses arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("unknown argument %q", args[0])
	}
	return nil
}
