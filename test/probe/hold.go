package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-gpu/nri-gpu/test/probe/report"
)

// shortJob is how long a container that ends by itself holds its cards.
const shortJob = 300 * time.Millisecond

// hold locks the file of each card in the host's directory, which says that no
// other container has it: the kernel lets go of the locks when this process ends,
// however it ends.
func hold(ctx context.Context, dir string, once bool) error {
	h := report.Held{Pod: os.Getenv("POD_UID"), Container: os.Getenv("CONTAINER")}
	lookAtNodes(&h.Report)
	card := regexp.MustCompile(`^/dev/nvidia[0-9]+$`)
	for _, n := range h.Nodes {
		if !card.MatchString(n.Path) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, "card"+filepath.Base(n.Path)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			h.Taken = append(h.Taken, n.Path)
		}
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, fmt.Sprintf("%s.%s.%d", h.Pod, h.Container, time.Now().UnixNano()))
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name+".json"); err != nil {
		return err
	}
	if once {
		ctx2, cancel := context.WithTimeout(ctx, shortJob)
		defer cancel()
		ctx = ctx2
	}
	<-ctx.Done()
	return nil
}
