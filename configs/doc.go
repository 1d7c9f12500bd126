// Package configs holds files for nodes and users: containerd and CRI-O
// settings, systemd units, settings of the daemons, pods, and an example CDI
// spec. Its test applies or strictly decodes every one of them.
package configs
