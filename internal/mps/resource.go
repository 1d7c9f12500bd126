package mps

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-gpu/nri-gpu/internal/resources"
)

// maxReplicasPreVolta is the number of clients that a daemon serves at a time on
// one card below compute capability 7.0 (NVIDIA's MPS documentation); from 7.0
// (Volta) on it is resources.MaxMPSReplicas.
const maxReplicasPreVolta = 16

// Resource is what one daemon serves.
type Resource struct {
	// Name is the kubelet's.
	Name string
	// Devices are its cards, in the order in which the daemon numbers them.
	Devices []Device
}

// Device is a card that is shared.
type Device struct {
	UUID string
	// MemoryBytes is shared out among the replicas; zero where it is not known,
	// and then nothing limits a client.
	MemoryBytes uint64
	// ComputeCapability is "major.minor", or empty when unknown.
	ComputeCapability string
	// MIG says that it is a MIG device, or a card in MIG mode.
	MIG bool
	// Replicas is how often the card is offered.
	Replicas int
}

// Of takes the replicas out of a resource that is offered; devices that are
// offered once are no clients of a daemon.
func Of(r *resources.Resource) Resource {
	out := Resource{Name: r.Name}
	for i := range r.Devices {
		d := &r.Devices[i]
		if !strings.Contains(d.ID, resources.Separator) {
			continue
		}
		k := slices.IndexFunc(out.Devices, func(o Device) bool { return o.UUID == d.UUID })
		if k < 0 {
			k = len(out.Devices)
			out.Devices = append(out.Devices, Device{
				UUID: d.UUID, MemoryBytes: d.GPU.MemoryBytes, ComputeCapability: d.GPU.ComputeCapability, MIG: d.MIG != nil || d.GPU.MIGEnabled,
			})
		}
		out.Devices[k].Replicas++
	}
	return out
}

// validate says everything for which MPS cannot share the cards.
func (r *Resource) validate() error {
	if len(r.Devices) == 0 {
		return fmt.Errorf("resource %q has no card to share by MPS", r.Name)
	}
	var errs []error
	for i := range r.Devices {
		d := &r.Devices[i]
		errs = append(errs, d.validate())
		if first := &r.Devices[0]; d.Replicas != first.Replicas {
			errs = append(errs, fmt.Errorf("%s has %d replicas and %s has %d, but a daemon gives clients one share of every card's threads; offer the two under different resources (rename)", d.UUID, d.Replicas, first.UUID, first.Replicas))
		} else if d.preVolta() != first.preVolta() {
			errs = append(errs, fmt.Errorf("%s is of compute capability %s and %s of %s: a daemon with a card of 7.0 or newer serves none below; offer the two under different resources (rename)", d.UUID, d.ComputeCapability, first.UUID, first.ComputeCapability))
		}
	}
	return errors.Join(errs...)
}

func (d *Device) validate() error {
	most, which := resources.MaxMPSReplicas, "a card"
	if d.preVolta() {
		most, which = maxReplicasPreVolta, "a card below compute capability 7.0"
	}
	switch {
	case d.MIG || strings.HasPrefix(d.UUID, "MIG-"):
		return fmt.Errorf("%s is in MIG mode or a MIG device, which MPS does not share; use time-slicing, or switch MIG off", d.UUID)
	case d.Replicas < 1:
		return fmt.Errorf("%s has %d replicas; 1 is the least", d.UUID, d.Replicas)
	case d.Replicas > most:
		return fmt.Errorf("%s has %d replicas; MPS serves at most %d clients of %s, so ask for no more", d.UUID, d.Replicas, most, which)
	}
	return nil
}

func (d *Device) preVolta() bool {
	major, _, _ := strings.Cut(d.ComputeCapability, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// memoryMiB is one replica's part of the card's memory; zero for no limit.
func (d *Device) memoryMiB() uint64 { return d.MemoryBytes / uint64(max(d.Replicas, 1)) >> 20 }

// threads is one replica's part of a card's threads, in percent.
func (r *Resource) threads() int { return 100 / r.Devices[0].Replicas }

func uuids(cards []Device) []string {
	out := make([]string, len(cards))
	for i := range cards {
		out[i] = cards[i].UUID
	}
	return out
}

// dirName is the resource's name as that of a directory: a domain has no "_", so
// two names are never one.
func (r *Resource) dirName() string { return strings.Replace(r.Name, "/", "_", 1) }

// faults checks resources, each by itself and all together: two daemons cannot
// have one card, whose compute mode lets one server in.
func faults(all []Resource) map[string]error {
	out := map[string]error{}
	owner := map[string]string{}
	for i := range all {
		r := &all[i]
		err := r.validate()
		for _, uuid := range uuids(r.Devices) {
			if other, taken := owner[uuid]; taken {
				err = errors.Join(err, fmt.Errorf("%s is shared by MPS under %q already, and one daemon at a time can have a card; offer it under one resource", uuid, other))
			} else {
				owner[uuid] = r.Name
			}
		}
		if err != nil {
			out[r.Name] = err
		}
	}
	return out
}
