package nvml

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nri-gpu/nri-gpu/internal/device"
)

const (
	// slice is how long NVML waits for one event, in milliseconds; the end of
	// the listener is looked at in between.
	slice = 500
	// noInstance is NVML's "not attributable to an instance".
	noInstance = 0xFFFFFFFF
)

// listener waits for the XIDs of a set of cards.
type listener struct {
	uuids []string
	// reports tells which of them have events.
	reports map[string]bool
	names   map[gonvml.Device]string
	set     gonvml.EventSet
	end     chan struct{}
	done    sync.WaitGroup

	mu    sync.Mutex
	fault string
}

// listen makes the listener follow the cards of a snapshot, and notes which of
// them report. One that has failed is made anew with every snapshot, so that an
// error which stays costs one attempt and no log of its own.
func (w *worker) listen(inv *device.Inventory) {
	uuids := make([]string, len(inv.GPUs))
	for i := range inv.GPUs {
		uuids[i] = inv.GPUs[i].UUID
	}
	if w.listener == nil || w.listener.failed() != "" || !slices.Equal(w.listener.uuids, uuids) {
		failed := ""
		if w.listener != nil {
			failed = w.listener.failed()
		}
		w.stopListening()
		l, why := w.newListener(uuids)
		w.listener, inv.Driver.Deaf = l, cmp.Or(why, failed)
	}
	if w.listener == nil {
		return
	}
	for i := range inv.GPUs {
		inv.GPUs[i].Events = w.listener.reports[inv.GPUs[i].UUID]
	}
}

func (w *worker) newListener(uuids []string) (l *listener, why string) {
	if len(uuids) == 0 || !w.has("nvmlEventSetCreate") {
		return nil, ""
	}
	set, ret := w.lib.EventSetCreate()
	if ret != gonvml.SUCCESS {
		return nil, fmt.Sprintf("nvmlEventSetCreate: %v", ret)
	}
	l = &listener{uuids: uuids, reports: map[string]bool{}, names: map[gonvml.Device]string{}, set: set, end: make(chan struct{})}
	for _, uuid := range uuids {
		if why = l.register(w.lib, uuid); why != "" {
			break
		}
	}
	if len(l.names) == 0 {
		_ = set.Free() // nothing was registered with it
		return nil, why
	}
	l.done.Go(func() { l.run(w.send) })
	return l, why
}

// register adds a card. One that does not support events is no error: it has
// none, and is polled.
func (l *listener) register(lib gonvml.Interface, uuid string) (why string) {
	dev, ret := lib.DeviceGetHandleByUUID(uuid)
	if ret != gonvml.SUCCESS {
		return fmt.Sprintf("nvmlDeviceGetHandleByUUID of %s: %v", uuid, ret)
	}
	if types, ret := dev.GetSupportedEventTypes(); ret != gonvml.SUCCESS || types&gonvml.EventTypeXidCriticalError == 0 {
		return ""
	}
	switch ret := dev.RegisterEvents(gonvml.EventTypeXidCriticalError, l.set); ret {
	case gonvml.SUCCESS:
		l.reports[uuid], l.names[dev] = true, uuid
	case gonvml.ERROR_NOT_SUPPORTED:
	default:
		return fmt.Sprintf("nvmlDeviceRegisterEvents of %s: %v", uuid, ret)
	}
	return ""
}

// run passes XIDs on until the listener is ended or cannot go on.
func (l *listener) run(send func(message) error) {
	for {
		select {
		case <-l.end:
			return
		default:
		}
		data, ret := l.set.Wait(slice)
		if ret == gonvml.ERROR_TIMEOUT {
			continue
		}
		if ret != gonvml.SUCCESS {
			l.fail(fmt.Sprintf("nvmlEventSetWait: %v", ret))
			return
		}
		uuid, known := l.names[data.Device]
		if !known || data.EventType != gonvml.EventTypeXidCriticalError {
			continue
		}
		x := device.XID{GPU: uuid, Number: data.EventData, GPUInstance: instance(data.GpuInstanceId), ComputeInstance: instance(data.ComputeInstanceId)}
		if err := send(message{XID: &x}); err != nil {
			return // the parent is gone
		}
	}
}

func instance(id uint32) int {
	if id == noInstance {
		return -1
	}
	return int(id)
}

func (l *listener) fail(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = why
}

func (l *listener) failed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

func (w *worker) stopListening() {
	if w.listener == nil {
		return
	}
	close(w.listener.end)
	w.listener.done.Wait()
	_ = w.listener.set.Free() // the library forgets it at shutdown in any case
	w.listener = nil
}
