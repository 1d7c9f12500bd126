package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-gpu/nri-gpu/test/harness"
	"github.com/nri-gpu/nri-gpu/test/stack"
)

const (
	namespace = "default"
	// workers run one Job after the other; with the Deployment they want more
	// cards than there are.
	workers  = 5
	replicas = 2
	// patience is how long a Job may take until it has run, faults and all.
	patience = 5 * time.Minute
	// holder is the Deployment.
	holder = "holder"
)

// workload is what runs on the node.
type workload struct {
	stack *stack.Stack
	// dir is the host's directory for locks and reports.
	dir     string
	running sync.WaitGroup
	end     chan struct{}
}

func newWorkload(s *stack.Stack) (*workload, error) {
	w := &workload{stack: s, dir: filepath.Join(s.World.Dir, "chaos"), end: make(chan struct{})}
	return w, harness.MakeDir(w.dir)
}

func (w *workload) template(args ...string) corev1.PodTemplateSpec {
	grace := int64(1)
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	host := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": args[0]}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, HostNetwork: true,
			Volumes: []corev1.Volume{host("probe", filepath.Join(w.stack.Bin, "test")), host("held", w.dir)},
			Containers: []corev1.Container{{
				Name: "main", Image: harness.DebianImage("").Name, ImagePullPolicy: corev1.PullNever,
				Command:      append([]string{"/probe/probe", "hold", "/held"}, args[1:]...),
				Env:          []corev1.EnvVar{field("POD_UID", "metadata.uid"), {Name: "CONTAINER", Value: "main"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "probe", MountPath: "/probe", ReadOnly: true}, {Name: "held", MountPath: "/held"}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceName(w.stack.Node.Resource): *resource.NewQuantity(1, resource.DecimalSI),
				}},
			}},
		},
	}
}

// start runs the workers, and the Deployment whose pods are deleted.
func (w *workload) start(ctx context.Context, f *figures) {
	for i := range workers {
		w.running.Go(func() {
			for n := 0; !w.over(ctx); n++ {
				w.job(ctx, fmt.Sprintf("job-%d-%d", i, n), int64(1+(i+n)%2), f)
			}
		})
	}
	w.running.Go(func() { w.deployment(ctx, f) })
}

func (w *workload) over(ctx context.Context) bool {
	select {
	case <-w.end:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// job makes a Job, waits until it has run, and removes it.
func (w *workload) job(ctx context.Context, name string, gpus int64, f *figures) {
	jobs := w.stack.Client.BatchV1().Jobs(namespace)
	t := w.template("job", "once")
	t.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	t.Spec.Containers[0].Resources.Limits[corev1.ResourceName(w.stack.Node.Resource)] = *resource.NewQuantity(gpus, resource.DecimalSI)
	attempts := int32(1000)
	_, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: t, BackoffLimit: &attempts},
	}, metav1.CreateOptions{})
	if err == nil {
		err = stack.Until(ctx, patience, func(ctx context.Context) error {
			j, err := jobs.Get(ctx, name, metav1.GetOptions{})
			if err == nil && j.Status.Succeeded == 0 {
				err = fmt.Errorf("it has %d active and %d failed pods", j.Status.Active, j.Status.Failed)
			}
			return err
		})
	}
	if err != nil && ctx.Err() == nil {
		f.violate("Job %s did not run: %v", name, err)
	}
	w.refusals(ctx, "job-name="+name, f)
	background := metav1.DeletePropagationBackground
	_ = jobs.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}) // remove deletes what is left
}

// refusals counts the pods that the kubelet refused for good.
func (w *workload) refusals(ctx context.Context, selector string, f *figures) {
	pods, err := w.stack.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return // the API server is not touched; the context has ended
	}
	for i := range pods.Items {
		if s := pods.Items[i].Status; s.Phase == corev1.PodFailed {
			f.final(s.Reason)
		}
	}
}

// deployment keeps replicas, of which one is deleted now and then.
func (w *workload) deployment(ctx context.Context, f *figures) {
	n := int32(replicas)
	t := w.template(holder)
	_, err := w.stack.Client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: holder},
		Spec:       appsv1.DeploymentSpec{Replicas: &n, Template: t, Selector: &metav1.LabelSelector{MatchLabels: t.Labels}},
	}, metav1.CreateOptions{})
	if err != nil {
		f.violate("the Deployment was not made: %v", err)
		return
	}
	pods := w.stack.Client.CoreV1().Pods(namespace)
	for !w.over(ctx) {
		_ = wait(ctx, 3*time.Second)
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + holder})
		if err != nil {
			continue
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase == corev1.PodFailed {
				f.final(p.Status.Reason)
			}
			if i == 0 || p.Status.Phase == corev1.PodFailed {
				_ = pods.Delete(ctx, p.Name, metav1.DeleteOptions{}) // it may be gone already
			}
		}
	}
}

// finish waits until everything that was asked for has run.
func (w *workload) finish(ctx context.Context, f *figures) {
	close(w.end)
	w.running.Wait()
	err := stack.Until(ctx, patience, func(ctx context.Context) error {
		d, err := w.stack.Client.AppsV1().Deployments(namespace).Get(ctx, holder, metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != replicas {
			err = fmt.Errorf("%d of %d replicas run", d.Status.AvailableReplicas, replicas)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		f.violate("the Deployment does not run in the end: %v", err)
	}
}

// remove deletes everything, and waits until no pod is left.
func (w *workload) remove(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	all := metav1.DeleteOptions{PropagationPolicy: &background}
	if err := w.stack.Client.AppsV1().Deployments(namespace).Delete(ctx, holder, all); err != nil {
		return err
	}
	if err := w.stack.Client.BatchV1().Jobs(namespace).DeleteCollection(ctx, all, metav1.ListOptions{}); err != nil {
		return err
	}
	return stack.Until(ctx, 2*time.Minute, func(ctx context.Context) error {
		pods, err := w.stack.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return err
	})
}
