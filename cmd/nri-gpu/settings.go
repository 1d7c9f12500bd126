package main

import (
	"errors"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/nri-gpu/nri-gpu/internal/config"
)

// settings are the daemon's.
type settings struct {
	config.Daemon
	PluginIndex      string
	ExemptHandlers   []string
	ExemptNamespaces []string
}

// defaultListen is where health and metrics are served.
const defaultListen = "127.0.0.1:8470"

func (s *settings) addFlags(fs *pflag.FlagSet) {
	s.AddFlags(fs, defaultListen)
	fs.StringVar(&s.PluginIndex, "plugin-index", "40", "two digits: the order among the runtime's NRI plugins")
	fs.StringSliceVar(&s.ExemptHandlers, "exempt-runtime-handlers", nil, "runtime handlers whose containers keep their NVIDIA_VISIBLE_DEVICES")
	fs.StringSliceVar(&s.ExemptNamespaces, "exempt-namespaces", nil, "namespaces whose containers keep their NVIDIA_VISIBLE_DEVICES")
}

// Validate checks every setting.
func (s *settings) Validate() error {
	err := s.Daemon.Validate()
	if !regexp.MustCompile(`^[0-9]{2}$`).MatchString(s.PluginIndex) {
		err = errors.Join(err, &config.Error{Source: "default", Key: "plugin-index", Rule: "must be two digits, such as 40"})
	}
	return err
}
