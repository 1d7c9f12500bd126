package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end after SIGTERM.
const stopTimeout = 20 * time.Second

// Process is a running program, its output in a log.
type Process struct {
	Name string
	Log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// command is a program to start.
type command struct {
	name string
	path string
	args []string
	env  []string
	// ready is asked until it returns nil.
	ready func(context.Context) error
	// within bounds the wait for ready.
	within time.Duration
}

// start runs a program and waits until it is ready.
func (w *World) start(ctx context.Context, c command) (*Process, error) {
	logs := filepath.Join(w.Dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	p := &Process{Name: c.name, Log: filepath.Join(logs, c.name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(c.path, c.args...)
	p.cmd.Env = append(os.Environ(), c.env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = w.Dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if c.ready == nil {
		return p, nil
	}
	if err := p.await(ctx, c.ready, c.within); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// await asks until ready, and gives up when the program ends or time does.
func (p *Process) await(ctx context.Context, ready func(context.Context) error, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.Name, errors.Join(p.err, errors.New("see its log")), p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready within %s: %w\n%s", p.Name, within, last, p.Tail())
		case <-tick.C:
		}
	}
}

// Tail is the end of the log.
func (p *Process) Tail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-25):], []byte("\n")))
}

// Stop ends the program, at first gently, and waits for it.
func (p *Process) Stop() error {
	return p.end(syscall.SIGTERM)
}

// Kill ends the program at once, and waits for it.
func (p *Process) Kill() error {
	return p.end(syscall.SIGKILL)
}

// Pause stops the program where it is (SIGSTOP), and Continue lets it go on.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a paused program go on.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Running tells whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *Process) end(s syscall.Signal) error {
	if p == nil || !p.Running() {
		return nil
	}
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("%s did not end within %s of %v, and was killed", p.Name, stopTimeout, s)
}

// listening is ready when a Unix socket takes connections.
func listening(path string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
