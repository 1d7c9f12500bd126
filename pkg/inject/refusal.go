package inject

import (
	"fmt"

	"github.com/containerd/nri/pkg/api"
)

// Refusal is the error of a container that must not be created.
type Refusal struct {
	// Namespace, Pod and Container say whose it is.
	Namespace, Pod, Container string
	// Subject is what is refused: a device name, an annotation, a variable.
	Subject string
	// Why is the reason.
	Why string
	// Next is what to do.
	Next string
	// Err is the cause, where one is an error.
	Err error
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("nri-gpu refuses container %q of pod %s/%s: %s: %s. %s", r.Container, r.Namespace, r.Pod, r.Subject, r.Why, r.Next)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

func refuse(pod *api.PodSandbox, c *api.Container, subject, why, next string) *Refusal {
	return &Refusal{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName(), Subject: subject, Why: why, Next: next}
}
