// Package cdi is the contract between those who allocate devices and those who
// inject them: the names that travel, the codec that signs them, the spec
// files on disk, and the Resolver that turns names into OCI edits. It knows
// neither NRI nor the kubelet.
//
// Two private kinds live in the state directory. KindGPU has one device per
// GPU and MIG device, with its device nodes. KindDriver has one device per
// driver capability, with libraries, binaries, configuration and the hook, and
// a device "control" with the control nodes, which every container with a GPU
// gets. A container's edits are those of its devices joined with those of its
// capabilities.
package cdi
