// Package driverroot finds the files of an NVIDIA driver below a root
// directory: libraries, programs, configuration, firmware and sockets, each
// with the path that a container sees and the capability that it serves.
//
// Start at Find, which picks the root and returns its Files. Every symbolic
// link is resolved as if the root were "/": a driver container's absolute links
// mean its own files, never the host's. All sources of library directories are
// merged (fixed directories, ld.so.conf, ld.so.cache, given ones), because each
// layout is complete in only one of them.
package driverroot
