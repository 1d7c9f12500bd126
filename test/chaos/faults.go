package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

const (
	// recovery bounds the time until a node serves again.
	recovery = 90 * time.Second
	// calm is the longest pause between two faults.
	calm = 6 * time.Second
	// Stopped programs stand still for longer than the runtime waits for a plugin,
	// which is 2 s.
	pauseLeast, pauseMost = 1500 * time.Millisecond, 4 * time.Second
)

// faults does things to a node, one after the other.
type faults struct {
	stack  *stack.Stack
	random *rand.Rand
	f      *figures
}

func newFaults(s *stack.Stack, seed int64, f *figures) *faults {
	return &faults{stack: s, random: rand.New(rand.NewPCG(uint64(seed), 1)), f: f}
}

// part is a program of the node.
type part struct {
	name    string
	process func() *harness.Process
	start   func(context.Context) error
}

func (n *faults) parts() []part {
	s := n.stack
	return []part{
		{"nri-gpu", func() *harness.Process { return s.Node.NRI }, s.Node.StartNRI},
		{"device-plugin", func() *harness.Process { return s.Node.Plugin }, s.Node.StartPlugin},
		{"kubelet", func() *harness.Process { return s.Kubelet }, s.StartKubelet},
		{"containerd", func() *harness.Process { return s.Containerd }, s.StartContainerd},
	}
}

// next does one thing, undoes it, and waits until the node serves again.
func (n *faults) next(ctx context.Context) error {
	var name string
	var err error
	switch n.random.IntN(8) {
	case 0, 1, 2:
		name, err = n.kill(ctx, n.pick())
	case 3, 4:
		name, err = n.pause(ctx, n.pick())
	case 5:
		name, err = "fill the state directory", n.fill(ctx)
	case 6:
		name, err = n.truncate()
	case 7:
		name, err = n.wipe()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	begin := time.Now()
	if err := n.recovered(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	n.f.fault(name, time.Since(begin))
	return wait(ctx, time.Duration(n.random.Int64N(int64(calm))))
}

func (n *faults) pick() part { return n.parts()[n.random.IntN(4)] }

func (n *faults) kill(ctx context.Context, p part) (string, error) {
	name := "kill " + p.name
	if err := p.process().Kill(); err != nil {
		return name, err
	}
	if err := wait(ctx, time.Duration(n.random.IntN(2000))*time.Millisecond); err != nil {
		return name, err
	}
	return name, p.start(ctx)
}

func (n *faults) pause(ctx context.Context, p part) (string, error) {
	name := "stop " + p.name
	if err := p.process().Pause(); err != nil {
		return name, err
	}
	err := wait(ctx, pauseLeast+time.Duration(n.random.Int64N(int64(pauseMost-pauseLeast))))
	return name, errors.Join(err, p.process().Continue())
}

// fill leaves no room in the state directory, which is a file system of its own.
func (n *faults) fill(ctx context.Context) error {
	file := filepath.Join(string(n.stack.Node.State), "..fill")
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	block := bytes.Repeat([]byte{0xff}, 1<<16)
	for err == nil { // until there is no room
		_, err = f.Write(block)
	}
	_ = f.Close() // it could not take all
	waitErr := wait(ctx, pauseLeast)
	return errors.Join(waitErr, os.Remove(file))
}

// stateFiles are the files that the daemons share.
func (n *faults) stateFiles() []string {
	var out []string
	for _, pattern := range []string{"*.json", "cdi/*.json", "containers/*.json"} {
		found, err := filepath.Glob(filepath.Join(string(n.stack.Node.State), pattern))
		if err == nil {
			out = append(out, found...)
		}
	}
	return append(out, "/var/lib/nri-gpu/carrier.json")
}

func (n *faults) truncate() (string, error) {
	files := n.stateFiles()
	file := files[n.random.IntN(len(files))]
	err := os.Truncate(file, int64(n.random.IntN(40)))
	if errors.Is(err, os.ErrNotExist) {
		err = nil // the record of a container that ended meanwhile
	}
	return "truncate " + filepath.Base(file), err
}

// wipe empties the state directory, as a clean-up of /run does.
func (n *faults) wipe() (string, error) {
	entries, err := os.ReadDir(string(n.stack.Node.State))
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(string(n.stack.Node.State), e.Name())))
	}
	return "wipe the state directory", err
}

// recovered waits until the runtime, the kubelet and both daemons serve.
func (n *faults) recovered(ctx context.Context) error {
	return stack.Until(ctx, recovery, func(ctx context.Context) error {
		for _, url := range []string{
			"http://127.0.0.1:10248/healthz", "http://" + harness.NRIAddress + "/readyz", "http://" + harness.PluginAddress + "/readyz",
		} {
			ok, text := harness.Answers(ctx, url)
			if !ok {
				return fmt.Errorf("%s: %s", url, text)
			}
		}
		_, err := harness.Containers(ctx)
		return err
	})
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
