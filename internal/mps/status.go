package mps

import (
	"fmt"
	"reflect"
)

func (w *worker) load() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// ready, pending and failed set the status; e is the epoch, nil while there is
// none.
func (w *worker) ready(e *epoch) {
	if w.set(e, true, "") {
		w.log.WithField("epoch", e.name).Info("MPS is ready")
	}
}

func (w *worker) pending(e *epoch, reason string) {
	if w.set(e, false, reason) {
		w.log.Infof("MPS is not ready: %s", reason)
	}
}

func (w *worker) failed(e *epoch, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if w.set(e, false, reason) {
		w.log.Warnf("MPS is not ready: %s", reason)
	}
}

func (w *worker) set(e *epoch, ready bool, reason string) (changed bool) {
	w.mu.Lock()
	next, was := w.status, w.status
	next.Ready, next.Reason, next.Epoch, next.Without = ready, reason, "", nil
	if e != nil {
		next.Epoch, next.Without = e.name, e.without
	}
	if next.Ready != was.Ready || next.Epoch != was.Epoch {
		next.Since = w.cfg.Now()
	}
	w.status, w.present = next, e
	w.mu.Unlock()
	if reflect.DeepEqual(next, was) {
		return false
	}
	w.cfg.Changed(w.res.Name)
	return true
}
