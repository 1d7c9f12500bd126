package mps

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// marker is in the environment of a daemon and what it starts, and of nothing
// else: clients have the pipe directory in theirs too.
const marker = "NRI_GPU_MPS_DAEMON"

// control calls nvidia-cuda-mps-control about one daemon.
type control struct {
	programs *Programs
	pipe     string
	answer   time.Duration
}

func (w *worker) control(e *epoch) control {
	return control{programs: &w.programs, pipe: e.pipe, answer: w.cfg.Timing.Answer}
}

func (w *worker) daemonEnv(e *epoch) []string {
	return []string{
		"CUDA_MPS_LOG_DIRECTORY=" + e.log,
		// The daemon numbers its cards in this order.
		"CUDA_VISIBLE_DEVICES=" + strings.Join(uuids(e.cards), ","),
		marker + "=" + e.base,
	}
}

// complete says which program is missing.
func (p *Programs) complete() error {
	for name, path := range map[string]string{"nvidia-cuda-mps-control": p.Control, "nvidia-cuda-mps-server": p.Server, "nvidia-smi": p.SMI} {
		if path == "" {
			return fmt.Errorf("the driver root has no %s; install the driver's compute programs (Debian: nvidia-cuda-mps and nvidia-smi; Ubuntu: nvidia-compute-utils; RHEL: nvidia-driver-cuda)", name)
		}
	}
	return nil
}

// command is a program in a process group of its own, so that a signal for
// this program's terminal is not one for it, with nothing of this program's
// environment.
func (p *Programs) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	// A daemon looks for its server on the PATH and nowhere else.
	cmd.Env = append([]string{"PATH=" + filepath.Dir(p.Server) + ":" + filepath.Dir(program) + ":/usr/sbin:/usr/bin:/sbin:/bin"}, p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// call runs a program that should end soon and returns what it wrote.
func (p *Programs) call(ctx context.Context, deadline time.Duration, cmd func(context.Context) *exec.Cmd) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	c := cmd(bounded)
	// Its own children, if it has any, hold the pipe no longer than this.
	c.WaitDelay = deadline
	out, err := c.CombinedOutput()
	text := string(bytes.TrimSpace(out))
	switch {
	case err == nil:
		return text, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case bounded.Err() != nil:
		return "", fmt.Errorf("no answer within %s", deadline)
	case text != "":
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return "", err
}

func (c control) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := c.programs.command(ctx, c.programs.Control, args...)
	cmd.Env = append(cmd.Env, "CUDA_MPS_PIPE_DIRECTORY="+c.pipe)
	return cmd
}

// ask gives the daemon a command and returns its answer.
func (c control) ask(ctx context.Context, command string) (string, error) {
	out, err := c.programs.call(ctx, c.answer, func(ctx context.Context) *exec.Cmd {
		cmd := c.command(ctx)
		cmd.Stdin = strings.NewReader(command + "\n")
		return cmd
	})
	if err != nil {
		return "", fmt.Errorf("ask the MPS daemon to %q: %w", command, err)
	}
	return out, nil
}

// threads asks for the default share of threads, in percent; an answer that is
// no number is none.
func (c control) threads(ctx context.Context) (float64, error) {
	const question = "get_default_active_thread_percentage"
	out, err := c.ask(ctx, question)
	if err != nil {
		return 0, err
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(out, "%"), 64)
	if err != nil {
		return 0, fmt.Errorf("the MPS daemon answered %q to %q, which is no percentage", out, question)
	}
	return percent, nil
}

// limit gives each client its share. It holds for servers that start later, and
// there is none before the first client.
func (w *worker) limit(ctx context.Context, c control, e *epoch) error {
	var commands []string
	for i := range e.cards {
		if mib := e.cards[i].memoryMiB(); mib > 0 {
			commands = append(commands, fmt.Sprintf("set_default_device_pinned_mem_limit %d %dM", i, mib))
		}
	}
	commands = append(commands, fmt.Sprintf("set_default_active_thread_percentage %d", w.res.threads()))
	for _, command := range commands {
		out, err := c.ask(ctx, command)
		if err != nil {
			return err
		}
		w.log.Debugf("%s: %s", command, out)
	}
	percent, err := c.threads(ctx)
	if err != nil {
		return err
	}
	if !w.isShare(percent) {
		return fmt.Errorf("the MPS daemon was told to give a client %d%% of the threads and gives %g%%", w.res.threads(), percent)
	}
	return nil
}

func (w *worker) isShare(percent float64) bool {
	return math.Abs(percent-float64(w.res.threads())) < 0.5
}

// verify asks whether the daemon is there and has its limits; a client may have
// changed them.
func (w *worker) verify(ctx context.Context, e *epoch) error {
	c := w.control(e)
	percent, err := c.threads(ctx)
	if err != nil || w.isShare(percent) {
		return err
	}
	w.log.Warnf("somebody has set the share of threads to %g%% through the pipe of MPS; the limits are set again, for servers that start from now on", percent)
	return w.limit(ctx, c, e)
}
