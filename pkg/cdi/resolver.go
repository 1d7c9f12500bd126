package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cdilib "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// RequiredAnnotation is the key, on a device of KindDriver, whose value lists
// the container paths that a container must not be started without, separated
// by colons.
const RequiredAnnotation = Vendor + "/required"

// Resolver turns names into edits. It holds the private specs in memory;
// Resolve reads no file and calls only stat.
type Resolver struct {
	dir   string
	local func(string) string
	snap  atomic.Pointer[snapshot]
}

type snapshot struct {
	devices  map[Name]*specs.Device
	required map[string]bool // container paths
}

// NewResolver returns a Resolver for a directory of private specs. It knows
// nothing until Load. local translates a path of the host to one that this
// process can stat, for a process in a pod; nil where they are the same.
func NewResolver(dir string, local func(string) string) *Resolver {
	if local == nil {
		local = func(p string) string { return p }
	}
	r := &Resolver{dir: dir, local: local}
	r.snap.Store(&snapshot{})
	return r
}

// Load reads the specs anew. On an error what was loaded before stays in use;
// a file that is gone is not an error, and its devices are gone.
func (r *Resolver) Load() error {
	s := &snapshot{devices: map[Name]*specs.Device{}, required: map[string]bool{}}
	entries, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read spec directory: %w", err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		if err := s.add(filepath.Join(r.dir, e.Name())); err != nil {
			return err
		}
	}
	r.snap.Store(s)
	return nil
}

func (s *snapshot) add(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since the directory was read
	}
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	spec, err := DecodeSpec(data)
	if err != nil {
		return fmt.Errorf("spec file %q: %w", path, err)
	}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		s.devices[Name{Kind: spec.Kind, Device: d.Name}] = d
		for p := range strings.SplitSeq(d.Annotations[RequiredAnnotation], ":") {
			if p != "" {
				s.required[p] = true
			}
		}
	}
	return nil
}

// Devices lists the names of KindGPU that are known, sorted.
func (r *Resolver) Devices() []string {
	var out []string
	for n := range r.snap.Load().devices {
		if n.Kind == KindGPU {
			out = append(out, n.Device)
		}
	}
	slices.Sort(out)
	return out
}

// Serves tells whether the driver's spec is there: without it no device can be
// injected.
func (r *Resolver) Serves() bool {
	_, ok := r.snap.Load().devices[Name{KindDriver, DriverControl}]
	return ok
}

// Request is what one container gets.
type Request struct {
	// Names are of KindGPU or of an extra kind, each once.
	Names []Name
	// Capabilities are joined to them; one that the driver does not have is
	// left out.
	Capabilities []Capability
	// UID and GID are the container's user: nodes become its own, since a group
	// cannot be added to it.
	UID, GID uint32
}

// Injection is what goes into a container, as OCI has it.
type Injection struct {
	Devices []oci.LinuxDevice
	Rules   []oci.LinuxDeviceCgroup
	Mounts  []oci.Mount
	Env     []string
	Hooks   *oci.Hooks
	// HostNodes maps a device's path in the container to its path on the host.
	HostNodes map[string]string
	// Required holds the mount destinations that a container must not be
	// started without.
	Required map[string]bool
}

// UnknownError says that no spec has a device.
type UnknownError struct{ Name Name }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("no spec of this node has a device %q", e.Name)
}

// StaleError says that a spec names a file of the node that is not there.
type StaleError struct {
	Path string
	Why  error
}

func (e *StaleError) Error() string { return fmt.Sprintf("%s is not usable: %v", e.Path, e.Why) }

// Unwrap returns the reason.
func (e *StaleError) Unwrap() error { return e.Why }

// Resolve joins the edits of the devices with those of the capabilities,
// checks them against the node as it is now, and returns what goes in.
func (r *Resolver) Resolve(req Request) (*Injection, error) {
	s := r.snap.Load()
	edits, err := s.join(req)
	if err != nil {
		return nil, err
	}
	if err := r.check(&edits); err != nil {
		return nil, err
	}
	scratch := &oci.Spec{Process: &oci.Process{User: oci.User{UID: req.UID, GID: req.GID}}, Linux: &oci.Linux{}}
	if err := (&cdilib.ContainerEdits{ContainerEdits: &edits}).Apply(scratch); err != nil {
		return nil, err
	}
	inj := &Injection{
		Devices: scratch.Linux.Devices, Mounts: scratch.Mounts, Env: scratch.Process.Env, Hooks: scratch.Hooks,
		HostNodes: map[string]string{}, Required: map[string]bool{},
	}
	if scratch.Linux.Resources != nil {
		inj.Rules = scratch.Linux.Resources.Devices
	}
	for _, n := range edits.DeviceNodes {
		inj.HostNodes[n.Path] = hostPath(n)
	}
	for _, m := range edits.Mounts {
		inj.Required[m.ContainerPath] = s.required[m.ContainerPath]
	}
	return inj, nil
}

func (s *snapshot) join(req Request) (specs.ContainerEdits, error) {
	wanted := slices.Clone(req.Names)
	optional := map[Name]bool{}
	wanted = append(wanted, Name{KindDriver, DriverControl})
	for _, c := range req.Capabilities {
		n := Name{KindDriver, string(c)}
		optional[n] = true
		wanted = append(wanted, n)
	}
	var edits specs.ContainerEdits
	for _, n := range wanted {
		d, ok := s.devices[n]
		if !ok && optional[n] {
			continue
		}
		if !ok {
			return edits, &UnknownError{Name: n}
		}
		edits = JoinEdits(edits, d.ContainerEdits)
	}
	edits.Hooks = MergeHooks(edits.Hooks)
	return edits, nil
}

func hostPath(n *specs.DeviceNode) string {
	if n.HostPath != "" {
		return n.HostPath
	}
	return n.Path
}

// check looks at the node as it is now: a driver may have been removed, or a
// card, since the spec was written. Numbers of device nodes are read here and
// nowhere else, since they may change with every boot.
func (r *Resolver) check(edits *specs.ContainerEdits) error {
	nodes := make([]*specs.DeviceNode, len(edits.DeviceNodes))
	for i, n := range edits.DeviceNodes {
		live := *n // what n points to is shared by all containers
		if err := fill(&live, r.local(hostPath(n))); err != nil {
			return &StaleError{Path: hostPath(n), Why: err}
		}
		nodes[i] = &live
	}
	edits.DeviceNodes = nodes
	for _, m := range edits.Mounts {
		if err := unix.Access(r.local(m.HostPath), unix.F_OK); err != nil {
			return &StaleError{Path: m.HostPath, Why: err}
		}
	}
	for _, h := range edits.Hooks {
		if err := unix.Access(r.local(h.Path), unix.X_OK); err != nil {
			return &StaleError{Path: h.Path, Why: err}
		}
	}
	return nil
}

func fill(n *specs.DeviceNode, local string) error {
	var st unix.Stat_t
	if err := unix.Lstat(local, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return errors.New("it is not a character device")
	}
	mode := os.FileMode(st.Mode & 0o777)
	n.Type, n.Major, n.Minor, n.FileMode = "c", int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev)), &mode
	// A node that all may use stays root's; the container's user could not be
	// given the group of any other.
	if mode&0o006 == 0o006 {
		n.UID, n.GID = &st.Uid, &st.Gid
	}
	return nil
}
