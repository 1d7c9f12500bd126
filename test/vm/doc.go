// Package vm runs a node as users have it in a virtual machine, in software
// emulation: Debian with systemd, cgroup v2 and a kernel of its own, where
// containerd uses systemd's cgroups, our daemons are installed by hack/install.sh
// and run as services, and a module of ours (test/fakedriver) plays the driver.
//
// TestVM boots the machine and reports each scenario of package guest, whose
// test program runs inside, as a test of its own. What the machine gets beside
// Debian is on a second disk, the payload.
package vm
