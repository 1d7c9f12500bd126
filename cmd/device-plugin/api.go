package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"

	"github.com/nri-gpu/nri-gpu/internal/config"
	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/features"
	"github.com/nri-gpu/nri-gpu/internal/nodeapi"
	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// The places for node labels.
const (
	labelsFile        = "file"
	labelsNode        = "node"
	labelsNodeFeature = "node-feature"
)

// apiSettings say what to tell an API server, and to hear from it.
type apiSettings struct {
	// NodeName is this node's; empty: no API server is asked.
	NodeName, Kubeconfig, Namespace string
	// Labels are the places for node labels.
	Labels      []string
	FeatureFile string
	// ConfigDir has the configurations of which ConfigLabel of the node chooses
	// one, and ConfigDefault without the label.
	ConfigDir, ConfigLabel, ConfigDefault string
}

func (s *apiSettings) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.NodeName, "node-name", "", "this node's name; with it, events about cards are written to the API server")
	fs.StringVar(&s.Kubeconfig, "kubeconfig", "", "how to reach the API server; empty: by the pod's service account")
	fs.StringVar(&s.Namespace, "namespace", "default", "namespace of the NodeFeature object")
	fs.StringSliceVar(&s.Labels, "node-labels", nil, "where to publish node labels: file, node, node-feature")
	fs.StringVar(&s.FeatureFile, "feature-file", features.DefaultFile, "file for node labels, which Node Feature Discovery reads")
	fs.StringVar(&s.ConfigDir, "config-dir", "", "directory with one --config-file for each value of --config-label")
	fs.StringVar(&s.ConfigLabel, "config-label", "nvidia.com/device-plugin.config", "label of the node that chooses a configuration of --config-dir")
	fs.StringVar(&s.ConfigDefault, "config-default", "", "configuration of a node without the label; empty: the only one of --config-dir, or none")
	config.AddEnvAlias(fs, "node-name", "NODE_NAME")
	config.AddEnvAlias(fs, "namespace", "NAMESPACE")
	config.AddEnvAlias(fs, "config-default", "DEFAULT_CONFIG")
}

func (s *apiSettings) validateAPI(configFile string) error {
	var errs []error
	fault := func(key, rule string) { errs = append(errs, &config.Error{Source: "default", Key: key, Rule: rule}) }
	for _, place := range s.Labels {
		if !slices.Contains([]string{labelsFile, labelsNode, labelsNodeFeature}, place) {
			fault("node-labels", fmt.Sprintf("%q is not %q, %q or %q", place, labelsFile, labelsNode, labelsNodeFeature))
		} else if place != labelsFile && s.NodeName == "" {
			fault("node-labels", fmt.Sprintf("%q needs --node-name", place))
		}
	}
	if s.ConfigDir != "" && configFile != "" {
		fault("config-dir", "excludes --config-file; keep one")
	}
	if s.ConfigDir != "" && s.NodeName == "" {
		fault("config-dir", "needs --node-name, whose label chooses")
	}
	return errors.Join(errs...)
}

// api is what the daemon has of an API server. Its parts are nil where they are
// not configured.
type api struct {
	cfg    apiSettings
	client dynamic.Interface
	events *nodeapi.Events
	labels *features.Publisher
}

func newAPI(cfg settings, c *configuration, reg prometheus.Registerer, log logrus.FieldLogger) (*api, error) {
	a := &api{cfg: cfg.apiSettings}
	if cfg.NodeName != "" {
		var err error
		if a.client, err = features.Connect(cfg.Kubeconfig); err != nil {
			return nil, fmt.Errorf("--node-name is set, which asks for an API server: %w", err)
		}
		a.events = nodeapi.NewEvents(a.client, cfg.NodeName, log)
	}
	if len(cfg.Labels) == 0 {
		return a, nil
	}
	metrics, err := features.NewMetrics(reg)
	if err != nil {
		return nil, err
	}
	a.labels = features.New(features.Options{
		Sinks: a.sinks(log), Metrics: metrics, Log: log,
		Sharing: func() features.Sharing { return sharing(c.load()) },
		Machine: func() string { return features.MachineName(cfg.Roots(), "") },
	})
	return a, nil
}

func (a *api) sinks(log logrus.FieldLogger) []features.Sink {
	target := features.API{Client: a.client, Node: a.cfg.NodeName, Overwrote: func(key, was, now, manager string) {
		log.Warnf("the node's label %s=%s of %s is now %s", key, was, manager, now)
	}}
	var out []features.Sink
	for _, place := range a.cfg.Labels {
		switch place {
		case labelsFile:
			out = append(out, features.File(a.cfg.FeatureFile))
		case labelsNode:
			out = append(out, features.Node(target))
		case labelsNodeFeature:
			out = append(out, features.NodeFeature(target, a.cfg.Namespace))
		}
	}
	return out
}

// parts are what runs, until the context ends.
func (a *api) parts(c *configuration, wake func(), log logrus.FieldLogger) []func(context.Context) {
	var out []func(context.Context)
	if a.events != nil {
		out = append(out, a.events.Run)
	}
	if a.labels != nil {
		out = append(out, a.labels.Run)
	}
	if a.cfg.ConfigDir != "" {
		out = append(out, func(ctx context.Context) {
			err := nodeapi.FollowLabel(ctx, a.client, a.cfg.NodeName, a.cfg.ConfigLabel, func(value string) {
				c.choose(value)
				wake()
			})
			if err != nil {
				log.WithError(err).Error("the label that chooses the configuration is not followed")
			}
		})
	}
	return out
}

// health tells what changed since the inventory before.
func (a *api) health(before, now device.Inventory) {
	if a.events == nil {
		return
	}
	was := map[string]device.Health{}
	for _, d := range before.Devices() {
		was[d.UUID] = d.Health
	}
	for _, d := range now.Devices() {
		old, known := was[d.UUID]
		if d.Health == old || !known && d.Health.Healthy {
			continue
		}
		a.events.Health(d.UUID, d.Health.Healthy, d.Health.Reason)
	}
}

func (a *api) publish(inv device.Inventory) {
	if a.labels != nil {
		a.labels.Update(inv)
	}
}

func (a *api) state() []features.PlaceState {
	if a.labels == nil {
		return nil
	}
	return a.labels.State()
}

// sharing is what labels say of a configuration.
func sharing(cfg resources.Config) features.Sharing {
	out := features.Sharing{Resource: cfg.Whole, Replicas: map[string]int{}, MIGStrategy: cfg.MIG}
	for i := range cfg.Shares {
		s := &cfg.Shares[i]
		out.Replicas[s.Resource] = s.Replicas
		out.Strategy = s.Strategy
		out.Renamed = out.Renamed || s.Rename != ""
		out.MPSConfigured = out.MPSConfigured || s.Strategy == resources.MPS
	}
	return out
}
