package health

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/roots"
	"github.com/nri-gpu/nri-gpu/internal/state"
)

// Config configures a Monitor.
type Config struct {
	Roots  roots.Roots
	Data   state.DataDir
	Policy Policy
	// Quiet is how long a card must have been found usable after it was found
	// unusable.
	Quiet time.Duration
	Log   logrus.FieldLogger
	// Now is time.Now, whose monotonic part makes Quiet independent of the
	// clock's jumps.
	Now func() time.Time
}

// Monitor keeps what speaks against each device. Its methods may be called from
// anywhere.
type Monitor struct {
	cfg Config

	mu sync.Mutex
	memory
	// unsaved says that memory is not on disk as it is here.
	unsaved bool
	// saveError is what the last attempt to save them said.
	saveError string
	cordons   Cordons
	// cordonError says why the cordons may be out of date.
	cordonError string
	// bad is what the last looks found wrong with a card.
	bad map[string]sighting
	// ecc is the count of uncorrected errors at the last look.
	ecc map[string]uint64
}

// sighting is a card that a look found unusable.
type sighting struct {
	reason string
	// good is since when looks have found it usable; zero while they do not.
	good time.Time
}

// New returns a Monitor that remembers the faults of an earlier run. Faults that
// cannot be read are an error in the log, and their file is kept aside.
func New(cfg Config) *Monitor {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Monitor{cfg: cfg, bad: map[string]sighting{}, ecc: map[string]uint64{}}
	var err error
	if m.memory, err = readMemory(cfg.Data.Faults()); err != nil {
		aside := keepAside(cfg.Data.Faults())
		cfg.Log.WithError(err).Errorf("the faults that an earlier run found are not known; kept the file as %q; look at the cards (nvidia-smi -q), and `gpuctl cordon` what must not be used", aside)
		m.memory = memory{Cleared: map[string]string{}}
	}
	return m
}

// XID takes an error that the driver reported. It returns the action, and
// whether a device's health may have changed. inv says which MIG devices there
// are.
func (m *Monitor) XID(x device.XID, inv *device.Inventory) (action Action, changed bool) {
	action = m.cfg.Policy.Of(x.Number)
	log := m.cfg.Log.WithFields(logrus.Fields{"gpu": x.GPU, "xid": x.Number, "action": action})
	if !action.fatal() {
		log.Infof("the driver reported %s; the card stays in use", describe(x.Number))
		return action, false
	}
	log.Errorf("the driver reported %s", describe(x.Number))
	gpu := find(inv, x.GPU)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uuid := range concerned(gpu, x) {
		m.add(Fault{Device: uuid, XID: x.Number, Action: action, Reason: "the driver reported " + describe(x.Number), Evidence: look(m.cfg.Roots, gpu)})
	}
	m.save()
	return action, true
}

// concerned lists the devices that an error is about: the card, or the MIG
// devices of the instance that it names. An instance that is not known is no
// reason to believe the others healthy.
func concerned(gpu *device.GPU, x device.XID) []string {
	var out []string
	for i := range gpu.MIGDevices {
		m := &gpu.MIGDevices[i]
		if m.GPUInstance == x.GPUInstance && (x.ComputeInstance < 0 || m.ComputeInstance == x.ComputeInstance) {
			out = append(out, m.UUID)
		}
	}
	if x.GPUInstance < 0 || len(out) == 0 {
		return []string{gpu.UUID}
	}
	return out
}

func find(inv *device.Inventory, uuid string) *device.GPU {
	for i := range inv.GPUs {
		if inv.GPUs[i].UUID == uuid {
			return &inv.GPUs[i]
		}
	}
	return &device.GPU{UUID: uuid}
}

// add counts a fault that is there already, with the evidence of now: what was
// done before it came again did not help.
func (m *Monitor) add(f Fault) {
	f.Since, f.Count = m.cfg.Now().UTC(), 1
	m.unsaved = true
	i := slices.IndexFunc(m.Faults, func(g Fault) bool { return g.Device == f.Device && g.XID == f.XID })
	if i < 0 {
		m.Faults = append(m.Faults, f)
		return
	}
	f.Since, f.Count = m.Faults[i].Since, m.Faults[i].Count+1
	m.Faults[i] = f
}

// Apply returns the inventory with the health that everything together gives,
// and forgets the faults whose remedy was seen.
func (m *Monitor) Apply(inv device.Inventory) device.Inventory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readCordons()
	inv.GPUs = slices.Clone(inv.GPUs)
	for i := range inv.GPUs {
		gpu := &inv.GPUs[i]
		gpu.MIGDevices = slices.Clone(gpu.MIGDevices)
		m.watchErrors(gpu)
		m.recover(gpu)
		gpu.Health = m.judge(gpu.UUID, m.steady(gpu))
		for j := range gpu.MIGDevices {
			mig := &gpu.MIGDevices[j]
			mig.Health = m.judge(mig.UUID, mig.Health)
		}
	}
	m.save()
	return inv
}

// judge puts together what speaks against a device; the operator's word first.
func (m *Monitor) judge(uuid string, found device.Health) device.Health {
	if c, ok := m.cordons.Cordoned[uuid]; ok {
		return device.Health{Reason: fmt.Sprintf("it is cordoned: %s; `gpuctl uncordon %s` ends that", c.Reason, uuid)}
	}
	var worst *Fault
	for i := range m.Faults {
		f := &m.Faults[i]
		if f.Device == uuid && (worst == nil || slices.Index(actions(), f.Action) > slices.Index(actions(), worst.Action)) {
			worst = f
		}
	}
	if worst != nil {
		return device.Health{Reason: worst.text()}
	}
	return found
}

// steady holds a card back that was found unusable a short while ago.
func (m *Monitor) steady(gpu *device.GPU) device.Health {
	now := m.cfg.Now()
	last, was := m.bad[gpu.UUID]
	switch {
	case !gpu.Health.Healthy:
		m.bad[gpu.UUID] = sighting{reason: gpu.Health.Reason}
		return gpu.Health
	case !was:
		return gpu.Health
	case last.good.IsZero():
		last.good = now
		m.bad[gpu.UUID] = last
	}
	if now.Sub(last.good) >= m.cfg.Quiet {
		delete(m.bad, gpu.UUID)
		m.cfg.Log.WithField("gpu", gpu.UUID).Infof("the card has been usable for %s; it is in use again", m.cfg.Quiet)
		return gpu.Health
	}
	return device.Health{Reason: fmt.Sprintf("it was not usable a short while ago (%s) and is watched for %s before it is used again", last.reason, m.cfg.Quiet)}
}

// watchErrors takes a growing count of uncorrected errors for the event that a
// card without events does not send.
func (m *Monitor) watchErrors(gpu *device.GPU) {
	before, known := m.ecc[gpu.UUID]
	m.ecc[gpu.UUID] = gpu.ECCUncorrected
	if gpu.Events || !known || gpu.ECCUncorrected <= before {
		return
	}
	reason := fmt.Sprintf("its count of uncorrected memory errors grew from %d to %d, and its driver reports no events", before, gpu.ECCUncorrected)
	m.cfg.Log.WithField("gpu", gpu.UUID).Error(reason)
	m.add(Fault{Device: gpu.UUID, Action: Reset, Reason: reason, Evidence: look(m.cfg.Roots, gpu)})
}

// recover drops the faults of a card and its MIG devices whose remedy was seen.
func (m *Monitor) recover(gpu *device.GPU) {
	now := look(m.cfg.Roots, gpu)
	m.Faults = slices.DeleteFunc(m.Faults, func(f Fault) bool {
		if !belongs(gpu, f.Device) {
			return false
		}
		how := ""
		switch f.Action {
		case Reset:
			how = f.Evidence.resetSince(now)
		case Reboot:
			how = f.Evidence.rebootSince(now)
		case Replace, Ignore, RestartApp:
		}
		if how == "" {
			return false
		}
		m.unsaved = true
		m.cfg.Log.WithFields(logrus.Fields{"device": f.Device, "xid": f.XID}).Infof("%s: the fault is taken for mended: %s", how, f.Reason)
		return true
	})
	// What the driver asks for now is part of the evidence from here on.
	for i := range m.Faults {
		if f := &m.Faults[i]; belongs(gpu, f.Device) && asksForReset(now.Recovery) && f.Evidence.Recovery != now.Recovery {
			f.Evidence.Recovery, m.unsaved = now.Recovery, true
		}
	}
}

func belongs(gpu *device.GPU, uuid string) bool {
	return gpu.UUID == uuid || slices.ContainsFunc(gpu.MIGDevices, func(d device.MIGDevice) bool { return d.UUID == uuid })
}
