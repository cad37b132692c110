package verb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
)

// maxDisruptedPods is upstream's limit of evictions that a budget's controller has not confirmed.
const maxDisruptedPods = 2000

// evict deletes a pod if its PodDisruptionBudget allows.
func (op *Operation) evict(ctx context.Context, e *policyv1.Eviction) (runtime.Object, error) {
	if e.Name != op.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	opts := &metav1.DeleteOptions{}
	if e.DeleteOptions != nil {
		opts = e.DeleteOptions.DeepCopy()
		if len(opts.DryRun) > 0 {
			op.DryRun = true
		}
	}
	for {
		pod, err := op.newestPod(ctx)
		if err != nil {
			return nil, err
		}
		if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
			return nil, apierrors.NewConflict(op.Endpoint.Resource, op.Name, fmt.Errorf(
				"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, pod.UID))
		}
		unbudgeted := pod.DeletionTimestamp != nil || slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending}, pod.Status.Phase)
		pinned := unbudgeted
		if !unbudgeted {
			if pinned, err = op.useBudget(ctx, pod); err != nil {
				return nil, err
			}
		}
		err = op.deleteEvicted(ctx, pod, opts, pinned)
		if pinned && apierrors.IsConflict(err) && (opts.Preconditions == nil || opts.Preconditions.ResourceVersion == nil) {
			continue // the pod has changed: the budget may apply now
		}
		if err != nil {
			return nil, err
		}
		return statusCreated.DeepCopy(), nil
	}
}

func (op *Operation) newestPod(ctx context.Context) (*corev1.Pod, error) {
	entry, err := op.Get(ctx, "")
	if err != nil {
		return nil, err
	}
	obj, err := entry.Object()
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// deleteEvicted marks the pod as disrupted and deletes it. If pinned is set, the pod must not have
// changed since it was read.
func (op *Operation) deleteEvicted(ctx context.Context, pod *corev1.Pod, opts *metav1.DeleteOptions, pinned bool) error {
	one := *op
	one.Subresource, one.Verb, one.GVK, one.Options = "", "delete", op.Endpoint.GVK, opts
	opts = opts.DeepCopy()
	if opts.Preconditions == nil {
		opts.Preconditions = &metav1.Preconditions{}
	}
	uid, wanted := pod.UID, opts.Preconditions.ResourceVersion
	opts.Preconditions.UID = &uid
	if !one.DryRun {
		mark := one
		mark.Raw, mark.FieldManager = true, ""
		out, _, err := mark.Update(ctx, false, func(_ context.Context, old runtime.Object) (runtime.Object, error) {
			p := old.(*corev1.Pod).DeepCopy()
			if p.UID != uid || pinned && p.ResourceVersion != pod.ResourceVersion {
				return nil, apierrors.NewConflict(op.Endpoint.Resource, op.Name, errModified)
			}
			// The mark changes the resourceVersion for the deletion.
			if wanted != nil && *wanted != p.ResourceVersion {
				return nil, apierrors.NewConflict(op.Endpoint.Resource, op.Name, fmt.Errorf(
					"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *wanted, p.ResourceVersion))
			}
			setPodCondition(p, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: op.Endpoint.Shared.Now(),
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"})
			return p, nil
		})
		if err != nil {
			return err
		}
		pod = out.(*corev1.Pod)
		if opts.Preconditions.ResourceVersion != nil {
			opts.Preconditions.ResourceVersion = &pod.ResourceVersion
		}
	}
	_, _, err := one.Delete(ctx, opts)
	return err
}

// useBudget counts the eviction against the pod's budget. pinned reports that the pod's state
// allows the eviction, not the budget.
func (op *Operation) useBudget(ctx context.Context, pod *corev1.Pod) (pinned bool, err error) {
	budgets, err := op.budgetsOf(ctx, pod)
	if err != nil || len(budgets) == 0 {
		return false, err
	}
	if len(budgets) > 1 {
		return false, apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
	}
	budget := budgets[0]
	if !podReady(pod) {
		policy := policyv1.IfHealthyBudget
		if budget.Spec.UnhealthyPodEvictionPolicy != nil {
			policy = *budget.Spec.UnhealthyPodEvictionPolicy
		}
		if policy == policyv1.AlwaysAllow || budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0 {
			return true, nil
		}
	}
	endpoint, _ := op.Engine.Kinds.Hub("policy", "poddisruptionbudgets")
	one := op.Engine.InternalOperation(endpoint, budget.Namespace, budget.Name)
	one.Subresource, one.Raw, one.DryRun = "status", true, op.DryRun
	_, _, err = one.Update(ctx, false, func(_ context.Context, old runtime.Object) (runtime.Object, error) {
		b := old.(*policyv1.PodDisruptionBudget).DeepCopy()
		return b, op.decrement(b, pod.Name)
	})
	return false, err
}

func (op *Operation) decrement(b *policyv1.PodDisruptionBudget, podName string) error {
	resource := policyv1.Resource("poddisruptionbudget")
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return tooManyEvictions(fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name), 10)
	case b.Status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(resource, b.Name, errors.New("pdb disruptions allowed is negative"))
	case len(b.Status.DisruptedPods) > maxDisruptedPods:
		return apierrors.NewForbidden(resource, b.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case b.Status.DisruptionsAllowed == 0:
		return tooManyEvictions(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy), 0)
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Status.ObservedGeneration})
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[podName] = op.Endpoint.Shared.Now()
	return nil
}

func tooManyEvictions(cause string, retryAfter int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Code = http.StatusTooManyRequests
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	return err
}

// budgetsOf returns the budgets that select the pod.
func (op *Operation) budgetsOf(ctx context.Context, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	endpoint, ok := op.Engine.Kinds.Hub("policy", "poddisruptionbudgets")
	if !ok {
		return nil, nil
	}
	one := op.Engine.InternalOperation(endpoint, pod.Namespace, "")
	req, err := one.Endpoint.NewListRequest(metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	p, err := one.List(ctx, req)
	if err != nil {
		return nil, err
	}
	var out []*policyv1.PodDisruptionBudget
	for _, entry := range p.Entries {
		budget, err := registry.ObjectOf[*policyv1.PodDisruptionBudget](entry)
		if err != nil {
			return nil, err
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			continue // the budget's controller reports it in its status
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, budget)
		}
	}
	return out, nil
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
