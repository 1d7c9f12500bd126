// Package mps runs NVIDIA's MPS control daemon for each resource whose replicas
// share cards by MPS, and says of each whether containers can use it.
//
// Start at Manager. Every daemon is a child of this process and has its own
// directories and cards. A life of a daemon is an epoch, and the epoch is part
// of the pipe directory's path: a container that was made for an earlier daemon
// is told from one of the present daemon by its mount. A daemon is ready once
// its limits are set and it answers with them; it is asked again now and then.
// One that ends, or does not answer, is replaced under a new epoch, with
// back-off. What a daemon or a killed predecessor of this process leaves behind
// (processes, directories, shared memory, compute modes) is cleared away.
//
// A container needs what ContainerEdits returns. The memory limit holds for each
// client process, not for a container (NVIDIA's design). A client may change the
// daemon's defaults through the pipe, so they are looked at with every question
// and set again. The log of a daemon lies beside its pipe directory; its last
// line is in the reason of a failure.
package mps
