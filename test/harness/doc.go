// Package harness runs the real stack on this machine and leaves nothing behind:
// etcd, the control plane, kubelet, containerd and runc, with our daemons on a
// node that has GPUs or plays to have some.
//
// Enter puts the program into a world of its own: mount, PID, network, IPC and
// UTS namespaces, made by running the program again. Whatever ends it, by a
// signal that cannot be caught too, ends every process, mount and network in
// it; a watchdog outside then removes its cgroups and its directory. The world
// has a private /run, /var/lib and /var/log, so that it meets neither the
// machine's own containerd nor its kubelet, and writes nothing beside them.
//
// Within, a Node has containerd, a kubelet and our daemons; a ControlPlane has
// the rest. Everything that is waited for has a deadline, and what failed shows
// the end of its log.
package harness
