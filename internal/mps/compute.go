package mps

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// The compute modes, in nvidia-smi's words.
const (
	modeExclusive = "EXCLUSIVE_PROCESS"
	modeDefault   = "DEFAULT"
)

// computeMode sets the mode of a card.
func (p *Programs) computeMode(ctx context.Context, deadline time.Duration, uuid, mode string) error {
	if p.SMI == "" {
		return fmt.Errorf("set the compute mode of %s to %s: the driver has no nvidia-smi", uuid, mode)
	}
	_, err := p.call(ctx, deadline, func(ctx context.Context) *exec.Cmd { return p.command(ctx, p.SMI, "-i", uuid, "-c", mode) })
	if err != nil {
		return fmt.Errorf("set the compute mode of %s to %s: %w", uuid, mode, err)
	}
	return nil
}

// exclusive lets nobody but an MPS server use the cards. Which ones is on disk
// first, so that whoever comes after a crash can take it back. A card that
// cannot be had costs itself; when none can, that is the error.
func (w *worker) exclusive(ctx context.Context, e *epoch) error {
	if err := w.cfg.remember(&w.res); err != nil {
		return err
	}
	var errs []error
	for _, d := range w.res.Devices {
		err := w.programs.computeMode(ctx, w.smiDeadline(), d.UUID, modeExclusive)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			e.cards = append(e.cards, d)
		default:
			w.log.WithError(err).Warn("MPS goes without a card")
			e.without, errs = append(e.without, d.UUID), append(errs, err)
		}
	}
	if len(e.cards) == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// regained says which card that the daemon goes without could be had now, once
// nobody uses the daemon; empty when there is none.
func (w *worker) regained(ctx context.Context, e *epoch) string {
	for _, uuid := range e.without {
		if w.programs.computeMode(ctx, w.cfg.Timing.Answer, uuid, modeExclusive) != nil {
			continue
		}
		if servers, err := w.control(e).ask(ctx, "get_server_list"); err == nil && servers == "" {
			return uuid
		}
	}
	return ""
}

// smiDeadline allows for nvidia-smi, which initialises cards that nobody holds.
func (w *worker) smiDeadline() time.Duration { return w.cfg.Timing.Start }

// shared gives cards back to everybody; it goes on after a failure.
func (p *Programs) shared(ctx context.Context, deadline time.Duration, uuids []string) error {
	var errs []error
	for _, uuid := range uuids {
		if err := p.computeMode(ctx, deadline, uuid, modeDefault); err != nil {
			errs = append(errs, fmt.Errorf("%w; until it is `nvidia-smi -i %s -c DEFAULT`, only one process at a time can use the card", err, uuid))
		}
	}
	return errors.Join(errs...)
}
