package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/nri-gpu/nri-gpu/internal/cli"
	"github.com/nri-gpu/nri-gpu/internal/config"
)

func TestTheStatusSaysWhoMustAct(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("the disk is full"), 1},
		{cli.Usage("no such flag"), 2},
		{fmt.Errorf("start: %w", &config.Error{Key: "state-dir"}), 2},
	} {
		require.Equal(t, c.want, cli.Status(c.err), "%v", c.err)
	}
}

func TestAnErrorIsToldOnceWithTheProgramsName(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--colour": "nri-gpu: unknown flag: --colour; see --help\n",
		"start":    "nri-gpu: unknown argument \"start\"; see --help\n",
	} {
		var stderr strings.Builder
		cmd := cli.Prepare(&cobra.Command{Use: "nri-gpu", Args: cli.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
		cmd.SetArgs([]string{args})
		require.Equal(t, 2, cli.Execute(cmd, &stderr))
		require.Equal(t, want, stderr.String())
	}
}
