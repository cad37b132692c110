package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// reconcileClaim releases what is no longer used. Each step writes with the revision it has read:
// if the scheduler adds a pod meanwhile, the write fails and the claim is checked again.
func (c *claims) reconcileClaim(ctx context.Context, key controller.Key) (controller.Result, error) {
	rc, ok := c.claims.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	users, err := c.stillUsing(ctx, rc)
	if err == nil {
		rc, err = c.deallocate(ctx, rc, users)
	}
	if err == nil && len(users) == 0 {
		err = c.deleteOfDonePod(ctx, rc)
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Result{}, err
}

// stillUsing returns the users in reservedFor that still exist: pods of this UID that have not
// ended. It keeps users of other kinds, about which it knows nothing.
func (c *claims) stillUsing(ctx context.Context, rc *resourcev1.ResourceClaim) ([]resourcev1.ResourceClaimConsumerReference, error) {
	var users []resourcev1.ResourceClaimConsumerReference
	for _, ref := range rc.Status.ReservedFor {
		if ref.APIGroup == "" && ref.Resource == "pods" {
			uses, err := c.isRunning(ctx, rc.Namespace, ref.Name, ref.UID)
			if err != nil {
				return nil, err
			}
			if !uses {
				continue
			}
		}
		users = append(users, ref)
	}
	return users, nil
}

// isRunning reports whether the pod exists and has not ended. The View of pods may be older than
// the claim, so a pod missing there is read from the API server.
func (c *claims) isRunning(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	p, ok := c.pods.Get(namespace, name)
	if !ok || p.UID != uid {
		fresh, err := client.Get[*corev1.Pod](ctx, c.env.Client, namespace, name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("get pod %s/%s of a claim: %w", namespace, name, err)
		}
		p = fresh
	}
	return p.UID == uid && !done(p), nil
}

// deallocate writes the remaining users. A claim without users loses its allocation, and without an
// allocation its protection. A claim that was allocated but never reserved keeps its allocation
// until it is deleted.
func (c *claims) deallocate(ctx context.Context, rc *resourcev1.ResourceClaim, users []resourcev1.ResourceClaimConsumerReference) (*resourcev1.ResourceClaim, error) {
	protected := slices.Contains(rc.Finalizers, resourcev1.Finalizer)
	free := protected && len(users) == 0 && rc.Status.Allocation != nil
	shrunk := len(users) < len(rc.Status.ReservedFor)
	if shrunk || free && rc.DeletionTimestamp != nil {
		changed := rc.DeepCopy()
		changed.Status.ReservedFor = users
		if free {
			changed.Status.Allocation, changed.Status.Devices = nil, nil
		}
		updated, err := client.UpdateStatus(ctx, c.env.Client, changed)
		if err != nil {
			return rc, fmt.Errorf("release claim %s/%s: %w", rc.Namespace, rc.Name, err)
		}
		rc = updated
	}
	if !protected || rc.Status.Allocation != nil || !shrunk && rc.DeletionTimestamp == nil {
		return rc, nil // the scheduler protects a claim just before it allocates it
	}
	changed := rc.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
	updated, err := client.Update(ctx, c.env.Client, changed)
	if err != nil {
		return rc, fmt.Errorf("remove the finalizer of claim %s/%s: %w", rc.Namespace, rc.Name, err)
	}
	return updated, nil
}

// deleteOfDonePod deletes a claim made for a pod that has ended: a pod kept for its logs must not
// keep devices. The garbage collector does the same for pods that are gone; either may be first.
func (c *claims) deleteOfDonePod(ctx context.Context, rc *resourcev1.ResourceClaim) error {
	name, uid, ok := owningPod(rc)
	if !ok || rc.DeletionTimestamp != nil {
		return nil
	}
	if running, err := c.isRunning(ctx, rc.Namespace, name, uid); err != nil || running {
		return err
	}
	return client.Delete[*resourcev1.ResourceClaim](ctx, c.env.Client, rc.Namespace, rc.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rc.UID}})
}
