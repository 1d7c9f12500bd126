// Package deviceplugin serves one extended resource to the kubelet over the
// device plugin API v1beta1, and keeps itself registered.
//
// Plugin is the whole: give it an inventory with SetDevices, let Run register
// and repair, and ask NotReady what is missing. Inside:
//
//   - list is what is advertised, an immutable snapshot that every open stream
//     follows. A device once listed is never dropped, only unhealthy: since
//     1.34 the kubelet panics when a device disappears while it is allocated.
//   - allocate answers from the device IDs alone. The kubelet checkpoints the
//     answer and replays it for the pod's life, over driver upgrades and
//     reboots, so it holds names and no paths. It errs only for an ID that was
//     never listed, since the kubelet rejects the pod for good.
//   - prefer proposes GPUs that are close to each other; it never errs, for the
//     same reason.
//   - registrar is the state machine: one socket file per attempt, registered
//     anew whenever the kubelet's socket is another, ours has vanished, or no
//     stream is open. The kubelet itself never reconnects.
//   - gate asks nri-gpu whether it is connected to the runtime. While it is not,
//     PreStartContainer answers an error, which the kubelet retries, and
//     guardKeeper removes the guard spec, so that containers fail early and by
//     name instead of starting without their GPU.
package deviceplugin
