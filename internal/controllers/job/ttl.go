package job

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// TTLAfterFinished deletes finished Jobs when their ttlSecondsAfterFinished has passed.
var TTLAfterFinished = controller.Starter{Name: "ttl-after-finished-controller", Run: runTTL}

func runTTL(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*batchv1.Job](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open jobs: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "ttl-after-finished-controller",
		Inputs: []controller.Input{controller.On(view, func(e client.TypedEvent[*batchv1.Job]) []controller.Key {
			if _, ok := expiry(e.Object); !ok || e.Type == client.Deleted {
				return nil
			}
			return []controller.Key{controller.KeyOf(e.Object)}
		})},
		Workers: 2,
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			job, ok := view.Get(key.Namespace, key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			at, ok := expiry(job)
			if !ok {
				return controller.Result{}, nil
			}
			if rest := at.Sub(env.Now()); rest > 0 {
				return controller.Result{After: rest}, nil
			}
			// The time to live may have changed a moment ago, so read the job fresh.
			fresh, err := client.Get[*batchv1.Job](ctx, env.Client, key.Namespace, key.Name)
			if apierrors.IsNotFound(err) {
				return controller.Result{}, nil
			}
			if err != nil {
				return controller.Result{}, err
			}
			if at, ok := expiry(fresh); !ok || at.Sub(env.Now()) > 0 {
				return controller.Result{}, nil // its event queues it again
			}
			policy := metav1.DeletePropagationForeground
			err = client.Delete[*batchv1.Job](ctx, env.Client, key.Namespace, key.Name, metav1.DeleteOptions{
				PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &fresh.UID, ResourceVersion: &fresh.ResourceVersion}})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return controller.Result{}, err
		},
	}
	return loop.Run(ctx)
}

// expiry returns the end of a finished job's time to live. ok is false if it has none, is not
// finished, or is being deleted.
func expiry(job *batchv1.Job) (at time.Time, ok bool) {
	end := finished(job)
	if end == nil || job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	return end.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second), true
}
