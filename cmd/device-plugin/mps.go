package main

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/mps"
	"github.com/nri-gpu/nri-gpu/internal/resources"
	"github.com/nri-gpu/nri-gpu/internal/specgen"
	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// sharer runs MPS for the resources that are shared by it, and makes what a
// container needs to be its client part of the cards' specs. A card whose MPS
// daemon does not serve is unhealthy: a container would run beside the others
// without the limits that it was sold with.
type sharer struct {
	manager *mps.Manager
	cfg     *settings
}

func newSharer(cfg *settings, wake func(), log logrus.FieldLogger) *sharer {
	root := cfg.MPSRoot
	if root == "" {
		root = filepath.Join(cfg.StateDir, "mps")
	}
	return &sharer{cfg: cfg, manager: mps.New(mps.Config{
		Root: root, Roots: cfg.Roots(), Mapping: cfg.Mapping(), Timing: mps.DefaultTiming(), Changed: func(string) { wake() }, Log: log,
	})}
}

func (s *sharer) run(ctx context.Context) { s.manager.Run(ctx) }

// apply has MPS serve what a plan shares by it, and changes the result to what
// it serves now.
func (s *sharer) apply(plan *resources.Plan, result *specgen.Result) {
	var served []mps.Resource
	for i := range plan.Resources {
		if r := &plan.Resources[i]; r.Strategy == resources.MPS {
			served = append(served, mps.Of(r))
		}
	}
	s.manager.Set(s.programs(result), served)
	for i := range served {
		r := &served[i]
		status, _ := s.manager.Status(r.Name) // it was set above
		edits, required, err := s.manager.ContainerEdits(r.Name)
		for _, d := range r.Devices {
			switch {
			case err != nil:
				unhealthy(result, d.UUID, err.Error())
			case !status.Serves(d.UUID):
				unhealthy(result, d.UUID, "its MPS daemon does not serve it; see the device plugin's log")
			default:
				result.Join(d.UUID, edits, required)
			}
		}
	}
}

func unhealthy(result *specgen.Result, uuid, why string) {
	for i := range result.Inventory.GPUs {
		if g := &result.Inventory.GPUs[i]; g.UUID == uuid && g.Health.Healthy {
			g.Health = device.Health{Reason: why}
		}
	}
}

// programs are those that the driver's spec would give a container.
func (s *sharer) programs(result *specgen.Result) mps.Programs {
	out := mps.Programs{Version: result.Inventory.Driver.Version}
	spec := result.Specs[cdi.KindDriver]
	if spec == nil {
		return out
	}
	local := s.cfg.Mapping().FromHost
	for _, d := range spec.Devices {
		for _, m := range d.ContainerEdits.Mounts {
			switch base := path.Base(m.ContainerPath); {
			case base == "nvidia-cuda-mps-control":
				out.Control = local(m.HostPath)
			case base == "nvidia-cuda-mps-server":
				out.Server = local(m.HostPath)
			case base == "nvidia-smi":
				out.SMI = local(m.HostPath)
			case strings.HasPrefix(base, "libcuda.so.") && s.cfg.DriverRoot != "" && s.cfg.DriverRoot != "/":
				out.Env = []string{"LD_LIBRARY_PATH=" + path.Dir(local(m.HostPath))}
			}
		}
	}
	return out
}

// state is what /debug/state shows.
func (s *sharer) state() []mps.Status { return s.manager.Statuses() }
