package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/nvidiaconfig"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// configuration is what is offered of what the node has: the flags, changed by
// the file. A file that cannot be used leaves the last good one in force.
type configuration struct {
	flags *resources.Config
	file  string // empty when there is none
	log   logrus.FieldLogger

	mu      sync.Mutex
	current resources.Config
	// text is the content that was read last.
	text    string
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
func newConfiguration(flags *resources.Config, file string, log logrus.FieldLogger) (*configuration, error) {
	c := &configuration{flags: flags, file: file, log: log, current: *flags, state: configurationState{File: file}}
	if file == "" {
		return c, nil
	}
	c.reload()
	if c.state.Fault != "" {
		return nil, errors.New(c.state.Fault)
	}
	return c, nil
}

// reload takes the file's content over when it has changed.
func (c *configuration) reload() {
	if c.file == "" {
		return
	}
	data, err := os.ReadFile(c.file)
	c.mu.Lock()
	defer c.mu.Unlock()
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
	if why != c.state.Fault && c.state.Generation > 0 {
		c.log.Errorf("%s; the one before stays in force; correct it", why)
	}
	c.state.Fault = why
}

// plan is what is offered of an inventory's devices.
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
	return c.state
}
