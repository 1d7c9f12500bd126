package cdi

// GuardPath is where the guard is mounted in a container: nothing can be
// mounted below /proc, so runc refuses to start a container that still has it.
// Its name is the advice that the error then shows.
const GuardPath = "/proc/nri-gpu-was-not-running-when-this-container-was-created"

// GuardMountSource is the host path of the guard where the kubelet carries it
// as a mount: a kubelet refuses a mount whose source does not exist.
const GuardMountSource = "/dev/null"
