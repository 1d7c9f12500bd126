package mps

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
)

// longestSocket is the longest name of a socket that a daemon makes in its pipe
// directory, and maxSocketPath what the kernel takes, in bytes.
const (
	longestSocket = "control_privileged"
	maxSocketPath = 107
)

// epochBytes is the length of an epoch's name, which is hexadecimal.
const epochBytes = 4

// epoch is one life of a daemon: its directories and its cards.
type epoch struct {
	name string
	// base holds pipe and log.
	base, pipe, log string
	// shm is what the daemon has at /dev/shm; ownShm that it is of this epoch
	// alone.
	shm    string
	ownShm bool
	// cards are those that the daemon serves, in its numbering; without are the
	// UUIDs of those that it does not.
	cards   []Device
	without []string
}

func (c *Config) resourceDir(r *Resource) string { return filepath.Join(c.Root, r.dirName()) }

// makeDirs makes the directories of a new epoch.
func (c *Config) makeDirs(r *Resource) (*epoch, error) {
	base, name, err := newEpoch(c.resourceDir(r))
	if err != nil {
		return nil, err
	}
	e := &epoch{name: name, base: base, pipe: filepath.Join(base, "pipe"), log: filepath.Join(base, "log"), shm: c.Shm}
	if own := c.ownShm(); own != "" {
		e.shm, e.ownShm = filepath.Join(own, r.dirName()+"_"+name), true
	}
	if err := c.fillDirs(e); err != nil {
		return nil, errors.Join(err, e.remove())
	}
	return e, nil
}

// newEpoch makes a directory that has not been before: the name is drawn, since
// neither a clock nor a counter in a file can be relied on.
func newEpoch(parent string) (base, name string, err error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", "", fmt.Errorf("make the directory of an MPS daemon: %w", err)
	}
	var random [epochBytes]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", "", fmt.Errorf("draw the name of an MPS epoch: %w", err)
	}
	name = hex.EncodeToString(random[:])
	base = filepath.Join(parent, name)
	if err := os.Mkdir(base, 0o755); err != nil {
		return "", "", fmt.Errorf("make the directory of an MPS daemon: %w", err)
	}
	return base, name, nil
}

func (c *Config) fillDirs(e *epoch) error {
	if socket := filepath.Join(e.pipe, longestSocket); len(socket) > maxSocketPath {
		return fmt.Errorf("the path of a socket of MPS, %q, has %d bytes and the kernel takes %d; choose a shorter root than %q, or a shorter resource name", socket, len(socket), maxSocketPath, c.Root)
	}
	modes := map[string]fs.FileMode{e.pipe: 0o755, e.log: 0o755}
	labelled := []string{e.pipe}
	if e.ownShm {
		if err := c.mountShm(); err != nil {
			return err
		}
		modes[e.shm] = 0o777 | fs.ModeSticky
		labelled = append(labelled, e.shm)
	}
	for dir, mode := range modes {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make a directory of an MPS daemon: %w", err)
		}
		// Clients of any user look into it, whatever this program's umask is.
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("open a directory of an MPS daemon to its clients: %w", err)
		}
	}
	return c.label(labelled...)
}

// remove deletes the directories. Containers that hold them keep what they have
// mounted.
func (e *epoch) remove() error {
	errs := []error{os.RemoveAll(e.base)}
	if e.ownShm {
		errs = append(errs, os.RemoveAll(e.shm))
	}
	return errors.Join(errs...)
}

// output is the file for what the daemon prints.
func (e *epoch) output() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(e.log, "output"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the output of an MPS daemon: %w", err)
	}
	return f, nil
}

// maxLog bounds a log of a daemon, in bytes; it lies in memory.
const maxLog = 16 << 20

// trimLogs empties logs that have grown too large.
func (e *epoch) trimLogs(log logrus.FieldLogger) {
	entries, err := os.ReadDir(e.log)
	for _, entry := range entries {
		if info, statErr := entry.Info(); statErr == nil && info.Mode().IsRegular() && info.Size() > maxLog {
			err = errors.Join(err, os.Truncate(filepath.Join(e.log, entry.Name()), 0))
		}
	}
	if err != nil {
		log.WithError(err).Warn("the logs of the MPS daemon may grow too large")
	}
}

// why says how a daemon ended that should not have.
func (e *epoch) why(p *process) error {
	return fmt.Errorf("its MPS daemon ended (%s)%s", p.state(), e.lastWords())
}

// lastWords is the last line of note that the daemon printed (in the foreground
// it logs there) or logged, for a sentence's end.
func (e *epoch) lastWords() string {
	for _, name := range []string{"output", "control.log"} {
		if line := lastLine(filepath.Join(e.log, name)); line != "" {
			return ": " + line
		}
	}
	return ""
}

func lastLine(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 1024
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil {
		return ""
	}
	for _, line := range slices.Backward(strings.Split(string(data), "\n")) {
		if line = ofNote(line); line != "" {
			return line
		}
	}
	return ""
}

// ofNote returns a line of a log without its time and process, or nothing when
// it only says that somebody gave a command or had an answer.
func ofNote(line string) string {
	if _, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(line, "[") {
		line = rest
	}
	line = strings.TrimSpace(line)
	for _, routine := range []string{"Accepting connection", "NEW UI", "UI closed", "Cmd:", "Starting control daemon", "To connect CUDA"} {
		if strings.HasPrefix(line, routine) {
			return ""
		}
	}
	if _, err := strconv.ParseFloat(line, 64); err == nil {
		return ""
	}
	return line
}
