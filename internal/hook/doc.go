// Package hook is what gpu-hook does inside a container's root file system
// before the container starts: links, and the loader's cache.
//
// The image is hostile until shown otherwise. Every path is resolved by the
// kernel with openat2 inside the root and never across a mount
// (RESOLVE_IN_ROOT, RESOLVE_NO_XDEV), so nothing of the host and nothing of a
// user's volume is read or written; nothing of the image is executed. What
// fails is a warning and not the container's end, because the driver's files
// are mounted by then. Two things are errors: a root that cannot be found, and
// a kernel that cannot resolve safely; the container could not find its driver.
//
// Apply may run any number of times over one root: the second finds everything
// as the first left it, and changes nothing.
package hook
