package policy

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Disruption maintains the status of PodDisruptionBudgets: the number of healthy pods among the
// selected ones, and how many may be evicted.
var Disruption = controller.Starter{Name: "disruption-controller", EventSource: "controllermanager", Run: runDisruption}

// deletionGrace is the time between a granted eviction and the deletion of its pod after which the
// eviction no longer counts.
const deletionGrace = 2 * time.Minute

type disruptions struct {
	env         controller.Env
	budgets     client.ViewOf[*policyv1.PodDisruptionBudget]
	pods        client.ViewOf[*corev1.Pod]
	sets        client.ViewOf[*appsv1.ReplicaSet]
	deployments client.ViewOf[*appsv1.Deployment]
	stateful    client.ViewOf[*appsv1.StatefulSet]
	controllers client.ViewOf[*corev1.ReplicationController]
	now         func() time.Time
}

func runDisruption(ctx context.Context, env controller.Env) (err error) {
	c := &disruptions{env: env, now: env.Now}
	if c.budgets, err = client.Open[*policyv1.PodDisruptionBudget](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open pod disruption budgets: %w", err)
	}
	if c.pods, err = client.Open[*corev1.Pod](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	if c.sets, err = client.Open[*appsv1.ReplicaSet](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open replica sets: %w", err)
	}
	if c.deployments, err = client.Open[*appsv1.Deployment](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open deployments: %w", err)
	}
	if c.stateful, err = client.Open[*appsv1.StatefulSet](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open stateful sets: %w", err)
	}
	if c.controllers, err = client.Open[*corev1.ReplicationController](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open replication controllers: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "disruption-controller",
		Inputs: []controller.Input{
			controller.Self(c.budgets),
			controller.On(c.pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				if e.Type == client.Modified && !healthChanged(e.Old, e.Object) {
					return nil
				}
				return controller.States(c.selecting)(e)
			}),
			// Percentages refer to the size of a workload.
			{View: c.sets.View, Keys: c.sizeKeys(func(o any) *int32 { return o.(*appsv1.ReplicaSet).Spec.Replicas })},
			{View: c.deployments.View, Keys: c.sizeKeys(func(o any) *int32 { return o.(*appsv1.Deployment).Spec.Replicas })},
			{View: c.stateful.View, Keys: c.sizeKeys(func(o any) *int32 { return o.(*appsv1.StatefulSet).Spec.Replicas })},
			{View: c.controllers.View, Keys: c.sizeKeys(func(o any) *int32 { return o.(*corev1.ReplicationController).Spec.Replicas })},
		},
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func healthChanged(a, b *corev1.Pod) bool {
	return controller.PodReady(a) != controller.PodReady(b) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		a.Status.Phase != b.Status.Phase || !maps.Equal(a.Labels, b.Labels) || metav1.GetControllerOfNoCopy(a) != nil != (metav1.GetControllerOfNoCopy(b) != nil)
}

func selectorOf(b *policyv1.PodDisruptionBudget) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector) // nil selects nothing
	if err != nil {
		return labels.Nothing()
	}
	return s
}

func (c *disruptions) selecting(p *corev1.Pod) []controller.Key {
	var keys []controller.Key
	for _, b := range c.budgets.List(p.Namespace, nil) {
		if selectorOf(b).Matches(labels.Set(p.Labels)) {
			keys = append(keys, controller.KeyOf(b))
		}
	}
	return keys
}

// sizeKeys returns the budgets of a workload's namespace if its size changed.
func (c *disruptions) sizeKeys(size func(any) *int32) func(client.Event) []controller.Key {
	return func(e client.Event) []controller.Key {
		if e.Type == client.Modified && equality.Semantic.DeepEqual(size(e.Old), size(e.Object)) {
			return nil
		}
		var keys []controller.Key
		for _, b := range c.budgets.List(controller.KeyOf(e.Object).Namespace, nil) {
			keys = append(keys, controller.KeyOf(b))
		}
		return keys
	}
}

func (c *disruptions) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	b, ok := c.budgets.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	pods := c.pods.List(b.Namespace, selectorOf(b))
	if len(pods) == 0 {
		c.env.Events.Eventf(b, nil, corev1.EventTypeNormal, "NoPods", "Count", "No matching pods found")
	}
	expected, desired, unmanaged, err := c.want(ctx, b, pods)
	if err != nil {
		c.env.Events.Eventf(b, nil, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Count", "Failed to calculate the number of expected pods: %v", err)
		return controller.Result{}, c.failSafe(ctx, b, err)
	}
	if len(unmanaged) > 0 {
		c.env.Events.Eventf(b, nil, corev1.EventTypeWarning, "UnmanagedPods", "Count",
			"Pods selected by this PodDisruptionBudget (selector: %v) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
				"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.", selectorOf(b))
	}
	disrupted, wait := c.disrupted(b, pods)
	healthy := int32(0)
	for _, p := range pods {
		if _, going := disrupted[p.Name]; !going && p.DeletionTimestamp == nil && controller.PodReady(p) {
			healthy++
		}
	}
	allowed := max(0, healthy-desired)
	if expected <= 0 {
		allowed = 0
	}
	status := policyv1.PodDisruptionBudgetStatus{
		CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: expected, DisruptionsAllowed: allowed,
		DisruptedPods: disrupted, ObservedGeneration: b.Generation, Conditions: append([]metav1.Condition(nil), b.Status.Conditions...),
	}
	condition := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason, ObservedGeneration: b.Generation}
	if allowed == 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
	return controller.Result{After: wait}, c.write(ctx, b, status)
}

func (c *disruptions) write(ctx context.Context, b *policyv1.PodDisruptionBudget, status policyv1.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(b.Status, status) {
		return nil
	}
	b = b.DeepCopy()
	b.Status = status
	_, err := client.UpdateStatus(ctx, c.env.Client, b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// failSafe allows no disruption while the numbers are unknown.
func (c *disruptions) failSafe(ctx context.Context, b *policyv1.PodDisruptionBudget, cause error) error {
	status := *b.Status.DeepCopy()
	status.DisruptionsAllowed, status.ObservedGeneration = 0, b.Generation
	apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: cause.Error(), ObservedGeneration: b.Generation})
	if err := c.write(ctx, b, status); err != nil {
		return err
	}
	return cause
}

// disrupted returns the pods whose eviction was granted but that are not being deleted yet. wait is
// the time until the first of them no longer counts.
func (c *disruptions) disrupted(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (map[string]metav1.Time, time.Duration) {
	var wait time.Duration
	out := map[string]metav1.Time{}
	for _, p := range pods {
		at, ok := b.Status.DisruptedPods[p.Name]
		if !ok || p.DeletionTimestamp != nil {
			continue
		}
		rest := at.Add(deletionGrace).Sub(c.now())
		if rest <= 0 {
			c.env.Events.Eventf(p, nil, corev1.EventTypeWarning, "NotDeleted", "Count", "Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
			continue
		}
		if wait == 0 || rest < wait {
			wait = rest
		}
		out[p.Name] = at
	}
	if len(out) == 0 {
		return nil, 0
	}
	return out, wait
}

// want returns the expected number of pods, and how many of them must be healthy.
func (c *disruptions) want(ctx context.Context, b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (expected, desired int32, unmanaged []string, err error) {
	switch {
	case b.Spec.MaxUnavailable != nil:
		if expected, unmanaged, err = c.expectedScale(ctx, pods); err != nil {
			return 0, 0, nil, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, int(expected), true)
		if err != nil {
			return 0, 0, nil, err
		}
		return expected, max(0, expected-int32(n)), unmanaged, nil
	case b.Spec.MinAvailable == nil:
		return int32(len(pods)), 0, nil, nil
	case b.Spec.MinAvailable.Type == intstr.Int:
		return int32(len(pods)), b.Spec.MinAvailable.IntVal, nil, nil
	}
	if expected, unmanaged, err = c.expectedScale(ctx, pods); err != nil {
		return 0, 0, nil, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, int(expected), true)
	return expected, int32(n), unmanaged, err
}

// expectedScale returns the sum of the sizes of the pods' workloads.
func (c *disruptions) expectedScale(ctx context.Context, pods []*corev1.Pod) (total int32, unmanaged []string, err error) {
	sizes := map[types.UID]int32{}
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			unmanaged = append(unmanaged, p.Name)
			continue
		}
		uid, size, err := c.scaleOf(ctx, p.Namespace, ref)
		if err != nil {
			return 0, nil, err
		}
		if uid == "" {
			return 0, nil, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		sizes[uid] = size
	}
	for _, n := range sizes {
		total += n
	}
	return total, unmanaged, nil
}

// scaleOf returns a controller's size. For a ReplicaSet of a Deployment it is the Deployment's
// size. Unknown kinds are read by their scale subresource.
func (c *disruptions) scaleOf(ctx context.Context, namespace string, ref *metav1.OwnerReference) (types.UID, int32, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return "", 0, err
	}
	switch (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}) {
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
		rs, ok := c.sets.Get(namespace, ref.Name)
		if !ok || rs.UID != ref.UID {
			return "", 0, nil
		}
		if up := metav1.GetControllerOfNoCopy(rs); up != nil && up.Kind == "Deployment" {
			if d, ok := c.deployments.Get(namespace, up.Name); ok && d.UID == up.UID {
				return d.UID, size(d.Spec.Replicas), nil
			}
			return "", 0, nil
		}
		return rs.UID, size(rs.Spec.Replicas), nil
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		if s, ok := c.stateful.Get(namespace, ref.Name); ok && s.UID == ref.UID {
			return s.UID, size(s.Spec.Replicas), nil
		}
		return "", 0, nil
	case schema.GroupKind{Kind: "ReplicationController"}:
		if rc, ok := c.controllers.Get(namespace, ref.Name); ok && rc.UID == ref.UID {
			return rc.UID, size(rc.Spec.Replicas), nil
		}
		return "", 0, nil
	}
	return c.scaleByAPI(ctx, namespace, gv.WithKind(ref.Kind), ref)
}

func (c *disruptions) scaleByAPI(ctx context.Context, namespace string, gvk schema.GroupVersionKind, ref *metav1.OwnerReference) (types.UID, int32, error) {
	lists, _ := c.env.Client.Discovery(ctx)
	for _, list := range lists {
		if list.GroupVersion != gvk.GroupVersion().String() {
			continue
		}
		for _, r := range list.APIResources {
			if r.Kind != gvk.Kind {
				continue
			}
			obj, err := c.env.Client.Get(ctx, gvk.GroupVersion().WithResource(r.Name), namespace, ref.Name, metav1.GetOptions{}, "scale")
			if apierrors.IsNotFound(err) {
				return "", 0, fmt.Errorf("%s.%s does not implement the scale subresource", r.Name, gvk.Group)
			}
			if err != nil {
				return "", 0, err
			}
			scale, ok := obj.(*autoscalingv1.Scale)
			if !ok || scale.UID != ref.UID {
				return "", 0, nil
			}
			return scale.UID, scale.Spec.Replicas, nil
		}
	}
	return "", 0, fmt.Errorf("no kind %s is served", gvk)
}

func size(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}
