package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/pkg/cdi"
)

// carrier knows how names travel to nri-gpu on this node. It is read when the
// registrar comes round and not at Allocate, which reads no file.
type carrier struct {
	file  string // empty where the runtime injects
	log   logrus.FieldLogger
	value atomic.Pointer[cdi.Carrier]
	// fault is what was last wrong with the file, and is told once.
	fault string
}

func newCarrier(cfg Config) *carrier {
	c := &carrier{log: cfg.Log}
	if cfg.NRI != nil {
		c.file = cfg.NRI.CarrierFile
	}
	return c
}

// refresh reads the file, and returns what is missing as long as no carrier was
// ever read: one that was once known stays when the file is lost.
func (c *carrier) refresh() (missing string) {
	if c.file == "" {
		return ""
	}
	value, err := cdi.ReadCarrier(c.file)
	if err == nil {
		c.store(value)
		return ""
	}
	known := c.value.Load() != nil
	if !known && errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("nri-gpu has not met the container runtime yet: %q does not exist; start nri-gpu, and see its log if it runs", c.file)
	}
	if err.Error() != c.fault {
		c.fault = err.Error()
		c.log.WithError(err).Warn("read nri-gpu's choice of carrier")
	}
	if known {
		return ""
	}
	return fmt.Sprintf("nri-gpu's choice of carrier cannot be read: %v; restart nri-gpu, which writes it", err)
}

func (c *carrier) store(value cdi.Carrier) {
	c.fault = ""
	if old := c.value.Swap(&value); old == nil || *old != value {
		c.log.Infof("device names travel as %s", value)
	}
}

// typed tells whether the runtime passes the typed list of names on.
func (c *carrier) typed() bool {
	value := c.value.Load()
	return value != nil && *value == cdi.CarrierCDI
}

func (c *carrier) String() string {
	if value := c.value.Load(); value != nil {
		return string(*value)
	}
	return ""
}
