// Package fakemps is a driver root's MPS programs without a GPU:
// nvidia-cuda-mps-control, nvidia-cuda-mps-server and nvidia-smi, which speak
// as NVIDIA's do (535.309.01, as seen without a GPU) and misbehave on demand.
//
// They are the test program itself under another name: a TestMain calls Main
// first, and ends with its code when the call was for one of them.
package fakemps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	controlName = "nvidia-cuda-mps-control"
	serverName  = "nvidia-cuda-mps-server"
	smiName     = "nvidia-smi"
	callsFile   = "calls"
)

// Programs is a directory with the programs.
type Programs struct{ dir string }

// Call is what one of the programs did.
type Call struct {
	// Program is the base name, or "command" for a command that a daemon took.
	Program string
	// PID is that of the daemon or server.
	PID  int
	Args []string
	// Env is what a daemon was given.
	Env map[string]string
	// ShmInode is that of the daemon's /dev/shm.
	ShmInode uint64
}

// Install makes the programs in a directory.
func Install(dir string) (*Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{controlName, serverName, smiName} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return &Programs{dir: dir}, nil
}

// Control is the path of nvidia-cuda-mps-control.
func (p *Programs) Control() string { return filepath.Join(p.dir, controlName) }

// Server is the path of nvidia-cuda-mps-server.
func (p *Programs) Server() string { return filepath.Join(p.dir, serverName) }

// SMI is the path of nvidia-smi.
func (p *Programs) SMI() string { return filepath.Join(p.dir, smiName) }

// Refuse makes daemons of some cards, as CUDA_VISIBLE_DEVICES has them, end at
// their start.
func (p *Programs) Refuse(cards string, on bool) error { return p.set(refuses, cards, on) }

// Hang makes them answer nothing.
func (p *Programs) Hang(cards string, on bool) error { return p.set(hangs, cards, on) }

// HaveClients makes them have a server in use, and wait for its clients when
// told to quit.
func (p *Programs) HaveClients(cards string, on bool) error { return p.set(hasClients, cards, on) }

// FailSMI makes nvidia-smi fail for a card.
func (p *Programs) FailSMI(uuid string, on bool) error { return p.set(smiFails, uuid, on) }

func (p *Programs) set(what, cards string, on bool) error {
	if on {
		return os.WriteFile(behaviour(p.dir, what, cards), nil, 0o644)
	}
	err := os.Remove(behaviour(p.dir, what, cards))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Calls are what the programs did so far, in order.
func (p *Programs) Calls() ([]Call, error) {
	data, err := os.ReadFile(filepath.Join(p.dir, callsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Call
	for line := range bytes.Lines(data) {
		var c Call
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("call %q: %w", line, err)
		}
		out = append(out, c)
	}
	return out, nil
}
