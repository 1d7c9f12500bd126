// Package logging makes the one logger of a program, and bridges the loggers
// of libraries to it. Keys are fixed: pod, namespace, container, device, kind,
// resource, duration.
package logging

import (
	"io"

	"github.com/sirupsen/logrus"
)

// New returns a logger; level and format are those of config.Log, which
// validates them. An unknown level means info.
func New(w io.Writer, level, format string) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(w)
	if parsed, err := logrus.ParseLevel(level); err == nil {
		log.SetLevel(parsed)
	}
	if format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	}
	return log
}
