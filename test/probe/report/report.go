// Package report is what the probe finds out inside a container.
package report

// Report is printed as JSON.
type Report struct {
	// Nodes are the NVIDIA device nodes that the container has.
	Nodes []Node `json:"nodes"`
	// Made are nodes that the probe made by mknod for every card there could
	// be, and tried to open: what the device cgroup allows.
	Made []Node `json:"made"`
	// Libraries are what the container's own ldconfig lists, name → path.
	Libraries map[string]string `json:"libraries"`
	// Dlopen is what the container's own loader says to libcuda.so.1: "ok", or
	// its message.
	Dlopen string `json:"dlopen"`
	// NVML lists the UUIDs that an NVML client in the image sees, or has its
	// error as the only element.
	NVML []string `json:"nvml"`
	// Env are the variables whose names start with NVIDIA.
	Env []string `json:"env"`
}

// Node is one device node.
type Node struct {
	Path  string `json:"path"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
	// Open is "ok", or the error of open: "ENXIO" where the cgroup allows it and
	// no driver is behind the node, "EPERM" where the cgroup does not.
	Open string `json:"open"`
}

// Allowed tells whether the device cgroup lets the container open the node.
func (n Node) Allowed() bool { return n.Open == "ok" || n.Open == "ENXIO" }

// Held is what a container reports that holds its cards.
type Held struct {
	Report
	// Pod is the pod's UID, and Container the container's name.
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Taken are cards that another container holds at the same time.
	Taken []string `json:"taken,omitempty"`
}
