package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/nvidiaconfig"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// configuration is what is offered of what the node has: the flags, changed by
// the file. A file that cannot be used leaves the last good one in force.
type configuration struct {
	flags *resources.Config
	log   logrus.FieldLogger
	// dir has one file for each configuration that a node's label may choose, and
	// standard names the one without a label.
	dir, standard string

	mu      sync.Mutex
	file    string // empty when there is none
	current resources.Config
	// text is the content that was read last.
	text string
	// misled says why the name that was last chosen is not in force.
	misled  string
	state   configurationState
	ignored []string
}

// configurationState is what people see of it.
type configurationState struct {
	File string `json:"file,omitempty"`
	// Generation counts the contents that were taken.
	Generation int `json:"generation"`
	// Fault says why the file's present content is not in force.
	Fault string `json:"fault,omitempty"`
	// Problems say what is not offered.
	Problems []string `json:"problems,omitempty"`
}

// newConfiguration reads the file for the first time, when there is no earlier
// one to fall back to: an unusable file is then an error.
func newConfiguration(cfg *settings, log logrus.FieldLogger) (*configuration, error) {
	c := &configuration{
		flags: cfg.resources(), file: cfg.ConfigFile, dir: cfg.ConfigDir, standard: cfg.ConfigDefault, log: log,
		state: configurationState{File: cfg.ConfigFile},
	}
	c.current = *c.flags
	if c.dir != "" {
		c.choose("") // until the API server says otherwise
	}
	c.reload()
	if c.state.Fault != "" {
		return nil, errors.New(c.state.Fault)
	}
	return c, nil
}

// choose takes the configuration of a name, "" for the standard one. A name that
// the directory does not have leaves the one before in force.
func (c *configuration) choose(name string) {
	name = cmp.Or(name, c.standard, c.only())
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == "" {
		c.misled = ""
		c.file, c.current, c.text, c.state = "", *c.flags, "", configurationState{Generation: c.state.Generation + 1}
		return
	}
	file := filepath.Join(c.dir, name)
	if _, err := os.Stat(file); err != nil || filepath.Base(name) != name {
		c.misled = fmt.Sprintf("the node's label chooses the configuration %q, and %q has only %q", name, c.dir, c.names())
		c.log.Errorf("%s; the one before stays in force", c.misled)
		return
	}
	c.misled = ""
	c.log.WithField("file", file).Info("this configuration is chosen")
	c.file, c.text, c.state.File = file, "", file
}

// names are the configurations of the directory.
func (c *configuration) names() []string {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // the links of a ConfigMap
			out = append(out, e.Name())
		}
	}
	return out
}

// only is the configuration of a directory that has one.
func (c *configuration) only() string {
	if names := c.names(); len(names) == 1 {
		return names[0]
	}
	return ""
}

// reload takes the file's content over when it has changed.
func (c *configuration) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == "" {
		return
	}
	data, err := os.ReadFile(c.file)
	if err == nil && c.state.Generation > 0 && string(data) == c.text {
		c.state.Fault = ""
		return
	}
	var next resources.Config
	var ignored []string
	if err == nil {
		next, ignored, err = decode(data, c.flags)
	}
	if err != nil {
		c.fault(fmt.Sprintf("configuration %q: %v", c.file, err))
		return
	}
	c.current, c.text, c.state.Fault = next, string(data), ""
	c.state.Generation++
	c.log.WithField("file", c.file).Infof("configuration %d is in force", c.state.Generation)
	for _, i := range ignored {
		if !slices.Contains(c.ignored, i) {
			c.log.WithField("file", c.file).Warnf("ignored: %s", i)
		}
	}
	c.ignored = ignored
}

func decode(data []byte, flags *resources.Config) (resources.Config, []string, error) {
	f, err := nvidiaconfig.Decode(data)
	if err != nil {
		return resources.Config{}, nil, err
	}
	return f.Apply(*flags)
}

func (c *configuration) fault(why string) {
	if why != c.state.Fault && c.state.Generation > 0 { // at the start it ends the program
		c.log.Errorf("%s; the one before stays in force; correct it", why)
	}
	c.state.Fault = why
}

// load returns what is in force.
func (c *configuration) load() resources.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// problems notes what the last plan left out, and tells what is new.
func (c *configuration) problems(list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range list {
		if !slices.Contains(c.state.Problems, p) {
			c.log.Warnf("not offered: %s", p)
		}
	}
	c.state.Problems = list
}

func (c *configuration) last() configurationState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.state
	out.Fault = cmp.Or(c.misled, out.Fault)
	return out
}
