package driverroot

import "github.com/nri-gpu/nri-gpu/pkg/cdi"

// Report says what was looked for, and found or not: the answer to "why does
// my container not have this file".
type Report struct {
	Root    string `json:"root"`
	Layout  string `json:"layout"`
	Version string `json:"version"`
	// VersionFrom says where the version comes from.
	VersionFrom string `json:"versionFrom"`
	// Directories are the library directories, and which source named each.
	Directories []Directory `json:"directories"`
	Items       []Item      `json:"items"`
	Problems    []Problem   `json:"problems,omitempty"`
}

// Directory is one library directory.
type Directory struct {
	Path   string `json:"path"`
	Source string `json:"source"`
}

// Item is one thing that was looked for.
type Item struct {
	// Kind is library, binary, config, firmware or socket.
	Kind         string           `json:"kind"`
	Name         string           `json:"name"`
	Capabilities []cdi.Capability `json:"capabilities,omitempty"`
	Found        bool             `json:"found"`
	Path         string           `json:"path,omitempty"`
	// Why says why it was not found or not taken.
	Why string `json:"why,omitempty"`
}

// Problem is something that was met and passed over.
type Problem struct {
	Path string `json:"path"`
	What string `json:"what"`
}

func (r *Report) dir(source, path string) {
	r.Directories = append(r.Directories, Directory{Path: path, Source: source})
}

func (r *Report) problem(path, what string) {
	r.Problems = append(r.Problems, Problem{Path: path, What: what})
}

func (r *Report) found(kind, name, path string, caps []cdi.Capability) {
	r.Items = append(r.Items, Item{Kind: kind, Name: name, Capabilities: caps, Found: true, Path: path})
}

func (r *Report) missing(kind, name, why string, caps []cdi.Capability) {
	r.Items = append(r.Items, Item{Kind: kind, Name: name, Capabilities: caps, Why: why})
}
