// Package hook is what gpu-hook does inside a container's root file system
// before the container starts: the driver's files, links, and the loader's
// cache.
//
// The image is hostile until shown otherwise. Every path is resolved by the
// kernel with openat2 inside the root and never across a mount
// (RESOLVE_IN_ROOT, RESOLVE_NO_XDEV), so nothing of the host and nothing of a
// user's volume is read or written; nothing of the image is executed. A mount
// joins two descriptors, the host's file and its place in the root, so that no
// path is resolved a second time.
//
// A driver file that cannot be mounted is the container's end, as it is when a
// runtime mounts it. A link or a cache that cannot be written is a warning.
// Errors are also a root that cannot be found, and a kernel that cannot resolve
// safely; the container could not find its driver.
//
// Apply may run any number of times over one root: the second finds everything
// as the first left it, and changes nothing.
package hook
