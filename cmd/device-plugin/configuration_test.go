package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// replicas is how often each card is offered.
func (c *configuration) replicas() int {
	cfg := c.load()
	if len(cfg.Shares) == 0 {
		return 1
	}
	return cfg.Shares[0].Replicas
}

func TestTheNodesLabelChoosesAConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("shared", twoReplicas)
	cfg := settings{MIGStrategy: "none"}
	cfg.ResourceName, cfg.ConfigDir = "nvidia.com/gpu", dir
	c, err := newConfiguration(&cfg, quiet())
	require.NoError(t, err)
	require.Equal(t, 2, c.replicas(), "the only one")

	write("whole", "version: v1\n")
	cfg.ConfigDefault = "whole"
	c, err = newConfiguration(&cfg, quiet())
	require.NoError(t, err)
	require.Equal(t, 1, c.replicas(), "the standard one")
	for name, want := range map[string]int{"shared": 2, "": 1} {
		c.choose(name)
		c.reload()
		require.Equal(t, want, c.replicas(), name)
		require.Empty(t, c.last().Fault)
	}
	c.choose("shared")
	c.reload()
	for _, name := range []string{"tpyo", "../shared", "..data"} {
		c.choose(name)
		c.reload()
		require.Equal(t, 2, c.replicas(), "the one before stays in force")
	}
	c.choose("tpyo")
	c.reload()
	require.Contains(t, c.last().Fault, `chooses the configuration "tpyo"`)
	require.Contains(t, c.last().Fault, "shared")

	// A link whose target is gone was an error that ended another plugin.
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	c.choose("dangling")
	require.Equal(t, 2, c.replicas())
	c.choose("whole")
	c.reload()
	require.Equal(t, 1, c.replicas())
}

func TestWithoutAFileTheFlagsAreInForce(t *testing.T) {
	t.Parallel()
	cfg := settings{MIGStrategy: "mixed"}
	cfg.ResourceName, cfg.ConfigDir = "nvidia.com/gpu", t.TempDir()
	c, err := newConfiguration(&cfg, quiet())
	require.NoError(t, err)
	require.Equal(t, *cfg.resources(), c.load())
	require.NoError(t, os.WriteFile(filepath.Join(cfg.ConfigDir, "x"), []byte(twoReplicas), 0o644))
	c.choose("x")
	c.reload()
	require.Equal(t, 2, c.replicas())
	require.NoError(t, os.Remove(filepath.Join(cfg.ConfigDir, "x")))
	c.choose("")
	require.Equal(t, 1, c.replicas())
}
