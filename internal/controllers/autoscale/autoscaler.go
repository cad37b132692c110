package autoscale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Horizontal scales the targets of HorizontalPodAutoscalers.
var Horizontal = controller.Starter{Name: "horizontal-pod-autoscaler-controller", Account: "horizontal-pod-autoscaler", EventSource: "horizontal-pod-autoscaler", Run: run}

// period is the interval between two rounds of an autoscaler, the default of upstream's flag.
const period = 15 * time.Second

type autoscaler struct {
	env     controller.Env
	scalers client.ViewOf[*autoscalingv2.HorizontalPodAutoscaler]
	pods    client.ViewOf[*corev1.Pod]
	source  source
	now     func() time.Time

	mu        sync.Mutex
	histories map[controller.Key]*history
}

func run(ctx context.Context, env controller.Env) (err error) {
	c := &autoscaler{env: env, source: source{env.Client}, now: env.Now, histories: map[controller.Key]*history{}}
	if c.scalers, err = client.Open[*autoscalingv2.HorizontalPodAutoscaler](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open horizontal pod autoscalers: %w", err)
	}
	if c.pods, err = client.Open[*corev1.Pod](ctx, env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:    "horizontal-pod-autoscaler-controller",
		Workers: 5,
		Inputs: []controller.Input{controller.On(c.scalers, func(e client.TypedEvent[*autoscalingv2.HorizontalPodAutoscaler]) []controller.Key {
			if e.Type == client.Modified && equality.Semantic.DeepEqual(e.Old.Spec, e.Object.Spec) {
				return nil // our own status update: the next round comes with the period
			}
			return []controller.Key{controller.KeyOf(e.Object)}
		})},
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

// history returns the record of an autoscaler. The queue gives a key to one worker at a time, so
// the record needs no lock.
func (c *autoscaler) history(key controller.Key) *history {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.histories[key] == nil {
		c.histories[key] = &history{}
	}
	return c.histories[key]
}

func (c *autoscaler) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	shared, ok := c.scalers.Get(key.Namespace, key.Name)
	if !ok {
		c.mu.Lock()
		delete(c.histories, key)
		c.mu.Unlock()
		return controller.Result{}, nil
	}
	a := shared.DeepCopy()
	err := c.round(ctx, a, c.history(key))
	if !equality.Semantic.DeepEqual(a.Status, shared.Status) {
		if _, writeErr := client.UpdateStatus(ctx, c.env.Client, a); writeErr != nil && !apierrors.IsNotFound(writeErr) {
			err = errors.Join(err, writeErr)
		}
	}
	if err != nil && !apierrors.IsConflict(err) {
		// Conditions and Events tell about the error; the period brings the next try.
		err = controller.Terminal(err)
	}
	return controller.Result{After: period}, err
}

// round evaluates the metrics once and scales the target. It records its findings in a's status.
func (c *autoscaler) round(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, h *history) error {
	now := c.now()
	a.Status.ObservedGeneration = &a.Generation
	reference := fmt.Sprintf("%s/%s/%s", a.Spec.ScaleTargetRef.Kind, a.Namespace, a.Spec.ScaleTargetRef.Name)
	res, scale, err := c.scale(ctx, a)
	if err != nil {
		c.env.Events.Eventf(a, nil, corev1.EventTypeWarning, "FailedGetScale", "Scale", "%v", err)
		setCondition(a, now, autoscalingv2.AbleToScale, false, "FailedGetScale", "the HPA controller was unable to get the target's current scale: %v", err)
		return fmt.Errorf("failed to query scale subresource for %s: %w", reference, err)
	}
	setCondition(a, now, autoscalingv2.AbleToScale, true, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	current := scale.Spec.Replicas
	a.Status.CurrentReplicas = scale.Status.Replicas
	least := int32(1)
	if a.Spec.MinReplicas != nil {
		least = *a.Spec.MinReplicas
	}
	desired, reason := current, ""
	switch {
	case current == 0 && least != 0:
		a.Status.DesiredReplicas = 0
		setCondition(a, now, autoscalingv2.ScalingActive, false, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		return nil
	case current > a.Spec.MaxReplicas:
		desired, reason = a.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case current < least:
		desired, reason = least, "Current number of replicas below Spec.MinReplicas"
	default:
		wanted, metric, err := c.demand(ctx, a, scale)
		if err != nil {
			a.Status.DesiredReplicas = current
			return fmt.Errorf("failed to compute desired number of replicas based on listed metrics for %s: %w", reference, err)
		}
		rules := rulesOf(a.Spec.Behavior)
		d := h.decide(rules, current, wanted, least, a.Spec.MaxReplicas, now)
		c.explain(a, d, now)
		if desired = d.replicas; desired != current {
			if reason = "All metrics below target"; desired > current {
				reason = metric + " above target"
			}
		}
	}
	a.Status.DesiredReplicas = desired
	if desired == current {
		return nil
	}
	if err := c.rescale(ctx, res, scale, desired); err != nil {
		c.env.Events.Eventf(a, nil, corev1.EventTypeWarning, "FailedRescale", "Scale", "New size: %d; reason: %s; error: %v", desired, reason, err)
		setCondition(a, now, autoscalingv2.AbleToScale, false, "FailedUpdateScale", "the HPA controller was unable to update the target scale: %v", err)
		a.Status.DesiredReplicas = current
		return fmt.Errorf("failed to rescale %s: %w", reference, err)
	}
	setCondition(a, now, autoscalingv2.AbleToScale, true, "SucceededRescale", "the HPA controller was able to update the target scale to %d", desired)
	c.env.Events.Eventf(a, nil, corev1.EventTypeNormal, "SuccessfulRescale", "Scale", "New size: %d; reason: %s", desired, reason)
	h.changed(rulesOf(a.Spec.Behavior), current, desired, now)
	a.Status.LastScaleTime = &metav1.Time{Time: now}
	return nil
}

// explain sets the conditions that say what limited a decision.
func (c *autoscaler) explain(a *autoscalingv2.HorizontalPodAutoscaler, d decision, now time.Time) {
	switch d.stabilized {
	case "ScaleDownStabilized":
		setCondition(a, now, autoscalingv2.AbleToScale, true, d.stabilized, "recent recommendations were higher than current one, applying the highest recent recommendation")
	case "ScaleUpStabilized":
		setCondition(a, now, autoscalingv2.AbleToScale, true, d.stabilized, "recent recommendations were lower than current one, applying the lowest recent recommendation")
	default:
		setCondition(a, now, autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size")
	}
	if d.limited != "" {
		setCondition(a, now, autoscalingv2.ScalingLimited, true, d.limited, "%s", d.message)
		return
	}
	setCondition(a, now, autoscalingv2.ScalingLimited, false, "DesiredWithinRange", "the desired count is within the acceptable range")
}

func setCondition(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time, kind autoscalingv2.HorizontalPodAutoscalerConditionType, met bool, reason, format string, args ...any) {
	status := corev1.ConditionFalse
	if met {
		status = corev1.ConditionTrue
	}
	for i := range a.Status.Conditions {
		if c := &a.Status.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.LastTransitionTime = metav1.NewTime(now)
			}
			c.Status, c.Reason, c.Message = status, reason, fmt.Sprintf(format, args...)
			return
		}
	}
	a.Status.Conditions = append(a.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...), LastTransitionTime: metav1.NewTime(now)})
}

// scale reads the scale subresource of the target.
func (c *autoscaler) scale(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (schema.GroupVersionResource, *autoscalingv1.Scale, error) {
	ref := a.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, nil, fmt.Errorf("invalid API version in scale target reference: %w", err)
	}
	res, err := c.resourceOf(ctx, gv, ref.Kind)
	if err != nil {
		return res, nil, err
	}
	obj, err := c.env.Client.Get(ctx, res, a.Namespace, ref.Name, metav1.GetOptions{}, "scale")
	if err != nil {
		return res, nil, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return res, nil, fmt.Errorf("the scale of %s %s is a %T", ref.Kind, ref.Name, obj)
	}
	return res, scale, nil
}

// resourceOf returns the resource that serves a kind.
func (c *autoscaler) resourceOf(ctx context.Context, gv schema.GroupVersion, kind string) (schema.GroupVersionResource, error) {
	// The discovery errors of other groups do not matter here.
	lists, err := c.env.Client.Discovery(ctx)
	for _, list := range lists {
		if list.GroupVersion != gv.String() {
			continue
		}
		for _, r := range list.APIResources {
			if r.Kind == kind && !strings.Contains(r.Name, "/") {
				return gv.WithResource(r.Name), nil
			}
		}
	}
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return schema.GroupVersionResource{}, fmt.Errorf("no matches for kind %q in version %q", kind, gv)
}

func (c *autoscaler) rescale(ctx context.Context, res schema.GroupVersionResource, scale *autoscalingv1.Scale, replicas int32) error {
	scale = scale.DeepCopy()
	scale.Spec.Replicas = replicas
	_, err := c.env.Client.Update(ctx, res, scale, metav1.UpdateOptions{}, "scale")
	return err
}

// targetPods returns the pods that the target's scale selects.
func (c *autoscaler) targetPods(a *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale) ([]*corev1.Pod, labels.Selector, error) {
	if scale.Status.Selector == "" {
		return nil, nil, errors.New("selector is required")
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't convert selector into a corresponding internal selector object: %w", err)
	}
	return c.pods.List(a.Namespace, selector), selector, nil
}
