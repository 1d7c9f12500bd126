// Package nvml discovers GPUs through libnvidia-ml.so.1.
//
// NVML runs in a process of its own, a worker that answers snapshots on a
// pipe. A call into the driver can hang for ever or crash, and a library that
// was once loaded cannot be exchanged within a process (go-nvml binds symbols
// for good), while a driver may be upgraded under a daemon that lives on. The
// parent kills a worker that does not answer in time, and starts a new one
// when the library or the kernel module is another than the worker loaded.
//
// Serve is the worker, Discoverer the parent. Everything that does not need
// NVML (procfs, sysfs) is read by the parent.
package nvml
