package nvml

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/nri-gpu/nri-gpu/internal/device"
	"github.com/nri-gpu/nri-gpu/internal/discovery"
	"github.com/nri-gpu/nri-gpu/internal/discovery/hostfs"
	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Options configure a Discoverer.
type Options struct {
	Roots roots.Roots
	// Library finds libnvidia-ml.so.1; an error that wraps fs.ErrNotExist means
	// that there is none. It is asked at every Discover.
	Library func() (string, error)
	// Command is the worker's command line: a program that calls Serve with the
	// library's path, which is appended as the last argument.
	Command []string
	// Deadline bounds one snapshot; the default is 6 s.
	Deadline time.Duration
}

// Discoverer keeps one worker and asks it for snapshots. It is not safe for
// concurrent use.
type Discoverer struct {
	opts   Options
	child  *child
	loaded identity
	last   device.Inventory
	xids   chan device.XID
}

var _ discovery.Discoverer = (*Discoverer)(nil)

// New returns a Discoverer; the worker starts with the first snapshot.
func New(opts Options) *Discoverer {
	if opts.Deadline == 0 {
		opts.Deadline = 6 * time.Second
	}
	return &Discoverer{opts: opts, xids: make(chan device.XID, maxXIDs)}
}

// maxXIDs is how many events may wait to be read. A card that reports more in
// one go has said enough by then.
const maxXIDs = 256

// XIDs tells of the errors that the driver reports; it is never closed.
func (d *Discoverer) XIDs() <-chan device.XID { return d.xids }

// Close ends the worker.
func (d *Discoverer) Close() {
	if d.child != nil {
		d.child.stop()
		d.child = nil
	}
}

// identity tells one installation of the driver from another.
type identity struct {
	library  string
	inode    uint64
	modified time.Time
	kernel   string
}

// Discover takes a snapshot.
func (d *Discoverer) Discover(ctx context.Context) device.Inventory {
	path, err := d.opts.Library()
	if err != nil {
		d.Close()
		return d.remember(device.Inventory{Driver: d.noLibrary(err)})
	}
	d.renewFor(identify(path, d.opts.Roots))
	a, err := d.ask(ctx, path)
	if err != nil {
		d.Close()
		return d.remember(device.Inventory{Driver: device.Driver{State: device.DriverHung, Reason: err.Error()}})
	}
	if a.Hung {
		d.Close()
	}
	return d.remember(d.complete(a))
}

func (d *Discoverer) noLibrary(err error) device.Driver {
	if !errors.Is(err, fs.ErrNotExist) {
		return device.Driver{State: device.DriverFailed, Reason: err.Error()}
	}
	if !hostfs.HasNVIDIAGPU(d.opts.Roots) {
		return device.Driver{State: device.DriverNoDevices, Reason: "the PCI bus has no NVIDIA GPU"}
	}
	return device.Driver{
		State:  device.DriverLibraryMissing,
		Reason: fmt.Sprintf("%v; install the NVIDIA driver, or set --driver-root or --nvml-library", err),
	}
}

// renewFor ends a worker that has loaded another driver than the one that is
// installed and running now.
func (d *Discoverer) renewFor(now identity) {
	if d.child != nil && d.loaded != now {
		d.Close()
	}
	d.loaded = now
}

func identify(path string, r roots.Roots) identity {
	id := identity{library: path, kernel: hostfs.DriverVersion(r)}
	if info, err := os.Stat(path); err == nil {
		id.modified = info.ModTime()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			id.inode = st.Ino
		}
	}
	return id
}

func (d *Discoverer) ask(ctx context.Context, path string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Deadline)
	defer cancel()
	if d.child == nil {
		c, err := startChild(append(slices.Clone(d.opts.Command), path), d.xids)
		if err != nil {
			return answer{}, err
		}
		d.child = c
	}
	return d.child.snapshot(ctx)
}

// remember keeps the snapshot, for the identity of a card that is lost later.
func (d *Discoverer) remember(inv device.Inventory) device.Inventory {
	if len(inv.GPUs) > 0 {
		d.last = inv
	}
	return inv
}

// child is a running worker.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan reply
	xids    chan<- device.XID
	done    chan struct{}
}

// reply is an answer, or why there is none.
type reply struct {
	answer answer
	err    error
}

func startChild(command []string, xids chan<- device.XID) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start NVML worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start NVML worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start NVML worker: %w", err)
	}
	c := &child{cmd: cmd, in: in, answers: make(chan reply, 1), xids: xids, done: make(chan struct{})}
	go c.read(out)
	return c, nil
}

// read passes messages on until the worker's output ends.
func (c *child) read(out io.Reader) {
	defer close(c.done)
	defer close(c.answers)
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		err = json.Unmarshal(line, &m)
		switch {
		case err != nil:
			c.answers <- reply{err: fmt.Errorf("answer of the NVML worker: %w", err)}
		case m.XID != nil:
			select {
			case c.xids <- *m.XID:
			default: // nobody reads, or there is more than anybody needs
			}
		case m.Answer != nil:
			c.answers <- reply{answer: *m.Answer}
		}
	}
}

func (c *child) snapshot(ctx context.Context) (answer, error) {
	if _, err := io.WriteString(c.in, "snapshot\n"); err != nil {
		return answer{}, fmt.Errorf("the NVML worker ended: %w", err)
	}
	select {
	case r, ok := <-c.answers:
		if !ok {
			return answer{}, errors.New("the NVML worker ended while the driver was asked; see its message in the log")
		}
		return r.answer, r.err
	case <-ctx.Done():
		return answer{}, fmt.Errorf("the driver did not answer in time (%w); look for NVRM messages in the kernel log", ctx.Err())
	}
}

// stop kills the worker and waits for it. A worker that the kernel holds in an
// uninterruptible call stays until that ends, and is waited for by a goroutine.
func (c *child) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.in.Close()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for range c.answers {
			continue // drained so that the reader ends
		}
		<-c.done
		_ = c.cmd.Wait()
	}()
	select {
	case <-finished:
	case <-time.After(time.Second):
	}
}
