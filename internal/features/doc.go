// Package features turns an inventory into the node labels that NVIDIA's GPU
// feature discovery writes, and publishes them: in a feature file of Node
// Feature Discovery, in a NodeFeature object, or on the Node itself.
//
// All keys are below nvidia.com/. The legacy keys (gpu.product, gpu.count,
// gpu.memory, ...) can describe one model only: on a node with several they
// describe the one with the most cards, and of several such the first by name.
// Every model has keys of its own besides,
//
//	nvidia.com/gpu.model.<model>.count, .memory, .family, .compute, .replicas
//	nvidia.com/gpu.model.<model>.mig-<profile>.count   (MIG strategy single or mixed)
//
// where <model> is the model as gpu.product writes it ("Tesla-T4"). A key that
// would be longer than the 63 characters that Kubernetes allows has a shorter
// model that ends in "-" and eight hexadecimal digits of the SHA-256 of the
// model's full name.
//
// Counts are of healthy devices: a card that is lost lowers the count and
// changes no other label. What is not known is left out and takes no other
// label with it.
//
// Three things differ from GPU feature discovery. A label is left out where
// that would write an empty value (the revision of a driver version of two
// parts) and gpu.sharing-strategy is "none" where the MIG layout is invalid.
// A family that it does not know by compute capability is NVML's. And
// gfd.timestamp, which makes every start a write, is off unless asked for.
package features
