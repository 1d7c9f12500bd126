package mps

import (
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-gpu/nri-gpu/internal/roots"
)

// Config says where a Manager works. Paths are as this process sees them.
type Config struct {
	// Root holds a directory for each resource; it belongs to the Manager alone.
	// Containers see the pipe directory at the host's path of it.
	Root string
	// Shm is what daemons and their clients have at /dev/shm. Empty: a tmpfs is
	// mounted at Root/shm, with a directory of its own for each epoch; that needs
	// CAP_SYS_ADMIN, and in a pod "Bidirectional" mount propagation of Root. Else
	// an existing directory that all share, "/dev/shm" for this process' own.
	Shm string
	// Roots is where sysfs is looked at (SELinux).
	Roots roots.Roots
	// Mapping translates to the host's paths, for ContainerEdits.
	Mapping roots.Mapping
	// Timing is DefaultTiming, but for tests.
	Timing Timing
	// Changed is called when the Status of a resource is another. It must not
	// block and may call the Manager.
	Changed func(resource string)
	Log     logrus.FieldLogger
	// Now is time.Now when nil.
	Now func() time.Time

	// mounting keeps workers from mounting shared memory twice.
	mounting *sync.Mutex
}

// Timing are the deadlines of a Manager.
type Timing struct {
	// Query is how often a daemon is asked whether it is there.
	Query time.Duration
	// Answer bounds one call of a program.
	Answer time.Duration
	// Misses is how many questions in a row may have no answer: a daemon is
	// replaced at the last of them.
	Misses int
	// Start bounds the time from a daemon's start to its first answer.
	Start time.Duration
	// Stop bounds the wait for a daemon that was told to quit; it waits for its
	// clients.
	Stop time.Duration
	// BackoffMin and BackoffMax bound the pause before a failed daemon is
	// replaced; the pause doubles with each failure. A daemon that was ready for
	// BackoffMax is one whose failure counts as the first.
	BackoffMin, BackoffMax time.Duration
}

// DefaultTiming is for a node in use. A question costs the start of a small
// program.
func DefaultTiming() Timing {
	return Timing{
		Query: 10 * time.Second, Answer: 5 * time.Second, Misses: 3,
		Start: 30 * time.Second, Stop: 20 * time.Second,
		BackoffMin: time.Second, BackoffMax: time.Minute,
	}
}

// Programs are NVIDIA's, from the driver root.
type Programs struct {
	// Control, Server and SMI are the paths of nvidia-cuda-mps-control,
	// nvidia-cuda-mps-server and nvidia-smi. Where one is empty, the driver has
	// none, and no resource becomes ready.
	Control, Server, SMI string
	// Env is added to the environment of all: LD_LIBRARY_PATH when the driver
	// root is not "/".
	Env []string
	// Version is the driver's. Daemons of another version are replaced, since
	// clients of a new driver cannot use them.
	Version string
}

// Status is what is to be known of a resource.
type Status struct {
	Resource string `json:"resource"`
	Ready    bool   `json:"ready"`
	// Reason says why it is not ready; empty when it is.
	Reason string `json:"reason,omitempty"`
	// Epoch names the present life of the daemon; empty while there is none.
	Epoch string `json:"epoch,omitempty"`
	// Since is when Ready or Epoch became what they are.
	Since time.Time `json:"since"`
	// Starts counts the daemons that were started for the resource.
	Starts int `json:"starts"`
	// Without are the cards that the present daemon does not serve, since they
	// could not be made ready for it. They are tried again, and the daemon is
	// replaced for one that works once that harms no client.
	Without []string `json:"without,omitempty"`
}

// Serves tells whether replicas of a card can be used.
func (s *Status) Serves(uuid string) bool { return s.Ready && !slices.Contains(s.Without, uuid) }

// devShm is where CUDA makes shared memory.
const devShm = "/dev/shm"

// ownShm is the directory of the tmpfs that a Manager mounts, or empty when it
// was given one.
func (c *Config) ownShm() string {
	if c.Shm != "" {
		return ""
	}
	return filepath.Join(c.Root, "shm")
}
