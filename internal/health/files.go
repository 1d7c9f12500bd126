package health

import (
	"os"
	"slices"
)

// readCordons takes the operator's cordons over. Ones that cannot be read leave
// those that are known in force.
func (m *Monitor) readCordons() {
	c, err := ReadCordons(m.cfg.Data.Cordons())
	if err != nil {
		if err.Error() != m.cordonError {
			m.cfg.Log.WithError(err).Errorf("the cordons cannot be read, and those known before stay in force; mend or remove %q", m.cfg.Data.Cordons())
		}
		m.cordonError = err.Error()
		return
	}
	m.cordons, m.cordonError = c, ""
	for uuid, mark := range c.Cleared {
		if m.Cleared[uuid] == mark {
			continue
		}
		m.Cleared[uuid], m.unsaved = mark, true
		before := len(m.Faults)
		m.Faults = slices.DeleteFunc(m.Faults, func(f Fault) bool { return f.Device == uuid })
		if n := before - len(m.Faults); n > 0 {
			m.cfg.Log.WithField("device", uuid).Infof("an operator cleared %d faults of the device", n)
		}
	}
}

// save writes the faults down when they have changed. What cannot be written is
// tried again with the next look, and told of once.
func (m *Monitor) save() {
	if !m.unsaved {
		return
	}
	if m.Faults == nil {
		m.Faults = []Fault{}
	}
	if err := writeJSON(m.cfg.Data.Faults(), m.memory); err != nil {
		if err.Error() != m.saveError {
			m.cfg.Log.WithError(err).Errorf("the faults of cards cannot be written down; they are forgotten if this program ends now; make room in %q", m.cfg.Data)
		}
		m.saveError = err.Error()
		return
	}
	m.unsaved, m.saveError = false, ""
}

func keepAside(path string) string {
	aside := path + ".unreadable"
	if err := os.Rename(path, aside); err != nil {
		return path
	}
	return aside
}

// State is what the Monitor knows, for people.
type State struct {
	Faults  []Fault           `json:"faults"`
	Cordons map[string]Cordon `json:"cordons"`
	Policy  string            `json:"defaultAction"`
	// Trouble says what keeps it from knowing or remembering.
	Trouble []string `json:"trouble,omitempty"`
}

// State returns the state of now.
func (m *Monitor) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := State{Faults: append([]Fault{}, m.Faults...), Cordons: m.cordons.Cordoned, Policy: string(m.cfg.Policy.fallback)}
	for _, t := range []string{m.cordonError, m.saveError} {
		if t != "" {
			out.Trouble = append(out.Trouble, t)
		}
	}
	return out
}
