// Package job runs pods to completion. It owns Jobs, CronJobs that create them, and the deletion of
// finished Jobs after their time to live.
//
// Words. A Job's pods carry the finalizer batch.kubernetes.io/job-tracking until they are counted.
// An ended pod is first noted in the status (uncountedTerminatedPods, or the completed indexes).
// Then its finalizer is removed, and then the pod is added to succeeded or failed. So each pod
// counts exactly once, whoever deletes it and whenever this process stops.
package job

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Job is the controller of Jobs.
var Job = controller.Starter{Name: "job-controller", Run: run}

const (
	finalizer = batchv1.JobTrackingFinalizer
	// byTracked indexes pods with the finalizer by "namespace/name" of the controlling Job. The
	// name is empty for a pod without one.
	byTracked = "job-tracked"
	// maxPodsPerSync limits the pods that one call creates or counts.
	maxPodsPerSync = 500
)

var kind = batchv1.SchemeGroupVersion.WithKind("Job")

type jobs struct {
	env     controller.Env
	control controller.PodControl
	jobs    client.ViewOf[*batchv1.Job]
	pods    client.ViewOf[*corev1.Pod]
	now     func() time.Time

	mu       sync.Mutex // guards backoffs; only the worker of a job uses its record
	backoffs map[types.UID]*backoff
}

func run(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*batchv1.Job](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open jobs: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	controller.IndexOwners(pods)
	pods.AddIndex(byTracked, func(p *corev1.Pod) []string {
		if !tracked(p) {
			return nil
		}
		name := ""
		if keys := controller.OwnerKeys(p, kind); len(keys) > 0 {
			name = keys[0].Name
		}
		return []string{p.Namespace + "/" + name}
	})
	c := &jobs{env: env, control: controller.PodControl{Client: env.Client, Events: env.Events}, jobs: view, pods: pods, now: env.Now, backoffs: map[types.UID]*backoff{}}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:      "job-controller",
		Inputs:    []controller.Input{controller.Self(view), controller.On(pods, c.podKeys)},
		Workers:   5,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, finalizer) }

// podKeys returns the job of a pod. For a tracked pod without a job, it returns a key with the
// namespace and no name.
func (c *jobs) podKeys(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	keys := controller.States(func(p *corev1.Pod) []controller.Key { return controller.OwnerKeys(p, kind) })(e)
	if e.Type == client.Deleted || metav1.GetControllerOfNoCopy(e.Object) != nil {
		return keys
	}
	if tracked(e.Object) {
		keys = append(keys, controller.Key{Namespace: e.Object.Namespace})
	}
	if e.Object.DeletionTimestamp == nil {
		for _, j := range c.jobs.List(e.Object.Namespace, nil) {
			if s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !s.Empty() && s.Matches(labels.Set(e.Object.Labels)) {
				keys = append(keys, controller.KeyOf(j))
			}
		}
	}
	return keys
}

func (c *jobs) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	job, ok := c.jobs.Get(key.Namespace, key.Name)
	var uid types.UID
	if ok {
		uid = job.UID
	}
	if err := c.freeStrays(ctx, key, uid); err != nil || !ok {
		return controller.Result{}, err
	}
	if job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName {
		return controller.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return controller.Result{}, controller.Terminal(fmt.Errorf("selector of job %s: %w", key, err))
	}
	if finished(job) != nil {
		c.forget(job.UID)
		return controller.Result{}, c.free(ctx, controller.Controlled(c.pods, job.UID))
	}
	pods, err := controller.Claimer[*corev1.Pod]{
		Client: c.env.Client, View: c.pods, Owner: job, Kind: kind, Selector: selector, Finalizers: []string{finalizer},
	}.Claim(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	r := newRound(c, job.DeepCopy(), pods)
	result, err := r.run(ctx)
	if apierrors.IsNotFound(err) || controller.NamespaceTerminating(err) {
		err = nil
	}
	return result, err
}

// freeStrays removes the finalizer from pods whose job is gone or was replaced by another of the
// same name, and from tracked pods without a controlling job.
func (c *jobs) freeStrays(ctx context.Context, key controller.Key, uid types.UID) error {
	var strays []*corev1.Pod
	for _, p := range c.pods.ByIndex(byTracked, key.Namespace+"/"+key.Name) {
		if ref := metav1.GetControllerOfNoCopy(p); ref == nil || ref.UID != uid {
			strays = append(strays, p)
		}
	}
	if len(strays) == 0 {
		return nil
	}
	if key.Name != "" && uid == "" {
		// The job may be newer than the View.
		fresh, err := client.Get[*batchv1.Job](ctx, c.env.Client, key.Namespace, key.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			strays = slices.DeleteFunc(strays, func(p *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(p).UID == fresh.UID })
		}
	}
	if key.Name == "" {
		strays = slices.DeleteFunc(strays, c.adoptable)
	}
	return c.free(ctx, strays)
}

// adoptable reports whether an unfinished job selects the pod.
func (c *jobs) adoptable(p *corev1.Pod) bool {
	return slices.ContainsFunc(c.jobs.List(p.Namespace, nil), func(j *batchv1.Job) bool {
		s, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
		return err == nil && !s.Empty() && s.Matches(labels.Set(p.Labels)) && finished(j) == nil && j.DeletionTimestamp == nil && p.DeletionTimestamp == nil
	})
}

// free removes the finalizer from pods.
func (c *jobs) free(ctx context.Context, pods []*corev1.Pod) error {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !tracked(p) })
	return controller.All(len(pods), func(i int) error {
		p := pods[i]
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "$deleteFromPrimitiveList/finalizers": []string{finalizer}}})
		if err != nil {
			return err
		}
		_, err = client.Patch[*corev1.Pod](ctx, c.env.Client, p.Namespace, p.Name, types.StrategicMergePatchType, patch)
		if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
			return nil // gone, or replaced by a pod of the same name
		}
		if err != nil {
			return fmt.Errorf("remove the tracking finalizer of pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		return nil
	})
}

// condition returns a job's condition of the type if it is True, else nil.
func condition(conditions []batchv1.JobCondition, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range conditions {
		if conditions[i].Type == t && conditions[i].Status == corev1.ConditionTrue {
			return &conditions[i]
		}
	}
	return nil
}

// finished returns the condition that ended the job, or nil if it has not ended.
func finished(job *batchv1.Job) *batchv1.JobCondition {
	if c := condition(job.Status.Conditions, batchv1.JobComplete); c != nil {
		return c
	}
	return condition(job.Status.Conditions, batchv1.JobFailed)
}
