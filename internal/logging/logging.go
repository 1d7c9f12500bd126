// Package logging makes the one logger of a program, and bridges the loggers
// of libraries to it. Keys are fixed: pod, namespace, container, device, kind,
// resource, duration.
package logging

import (
	"context"
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

// NRI is NRI's logger: its messages, with their source, at debug level unless
// they are warnings or errors.
type NRI struct{ Log logrus.FieldLogger }

// Debugf logs at debug level.
func (n NRI) Debugf(_ context.Context, format string, args ...any) { n.Log.Debugf(format, args...) }

// Infof logs at debug level: what NRI tells at every connection is no news to
// an operator.
func (n NRI) Infof(_ context.Context, format string, args ...any) { n.Log.Debugf(format, args...) }

// Warnf logs at warning level.
func (n NRI) Warnf(_ context.Context, format string, args ...any) { n.Log.Warnf(format, args...) }

// Errorf logs at error level.
func (n NRI) Errorf(_ context.Context, format string, args ...any) { n.Log.Errorf(format, args...) }
