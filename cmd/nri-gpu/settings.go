package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/pkg/inject"
)

// settings are the daemon's.
type settings struct {
	config.Daemon
	PluginIndex      string
	ExemptHandlers   []string
	ExemptNamespaces []string
	// ManagementNamespaces may ask for every card.
	ManagementNamespaces []string
	// Unallocated is what becomes of a container that has device nodes without
	// an allocation.
	Unallocated string
}

// The values of --unallocated.
const (
	observe = "observe"
	deny    = "deny"
)

// defaultListen is where health and metrics are served.
const defaultListen = "127.0.0.1:8470"

func (s *settings) addFlags(fs *pflag.FlagSet) {
	s.AddFlags(fs, defaultListen)
	fs.StringVar(&s.PluginIndex, "plugin-index", "40", "two digits: the order among the runtime's NRI plugins")
	fs.StringSliceVar(&s.ExemptHandlers, "exempt-runtime-handlers", nil, "runtime handlers whose containers keep their NVIDIA_VISIBLE_DEVICES")
	fs.StringSliceVar(&s.ExemptNamespaces, "exempt-namespaces", nil, "namespaces whose containers keep their NVIDIA_VISIBLE_DEVICES")
	fs.StringSliceVar(&s.ManagementNamespaces, "management-namespaces", nil, "namespaces whose pods get every card when they ask for it with the annotation "+inject.RequestDevices+"=all")
	fs.StringVar(&s.Unallocated, "unallocated", observe, "what becomes of a container that has NVIDIA device nodes without an allocation, such as a privileged one: observe or deny")
}

// Validate checks every setting.
func (s *settings) Validate() error {
	err := s.Daemon.Validate()
	if !regexp.MustCompile(`^[0-9]{2}$`).MatchString(s.PluginIndex) {
		err = errors.Join(err, &config.Error{Source: "default", Key: "plugin-index", Rule: "must be two digits, such as 40"})
	}
	if s.Unallocated != observe && s.Unallocated != deny {
		err = errors.Join(err, &config.Error{Source: "default", Key: "unallocated", Rule: fmt.Sprintf("%q is neither %q nor %q", s.Unallocated, observe, deny)})
	}
	return err
}
