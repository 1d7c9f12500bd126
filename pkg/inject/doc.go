// Package inject decides what a container gets, as a function of plain data:
// the pod and the container as the runtime describes them, the specs of the
// node, and the health of its cards. It talks to nobody.
//
// Injector.Decide has three answers. A nil Decision means that the container is
// none of our business, which is the case for nearly all and costs
// microseconds. A Decision has the adjustment. A *Refusal means that the
// container asked for something that it cannot get whole: its text names the
// object, the reason and the next step, and it is what `kubectl describe pod`
// shows. Nothing is ever injected in part.
package inject
