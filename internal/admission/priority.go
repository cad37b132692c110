package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// priority resolves a pod's priorityClassName to a priority and a preemption policy.
type priority struct {
	base
	classes *client.Lazy[*schedulingv1.PriorityClass]
}

func newPriority(classes *client.Lazy[*schedulingv1.PriorityClass]) Plugin {
	return priority{base{"Priority", []Operation{Create, Update, Delete}}, classes}
}

// SystemPriorityClasses returns the classes for critical pods, which every cluster has.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	preempt := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2000001000, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: 2000000000, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

// BootstrapPriorityClasses creates the missing ones of the system's priority classes.
func BootstrapPriorityClasses(ctx context.Context, c client.Interface) error {
	for _, class := range SystemPriorityClasses() {
		if _, err := client.Create(ctx, c, class); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create priority class %s: %w", class.Name, err)
		}
	}
	return nil
}

// Admit implements Mutator.
func (p priority) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	if a.Operation == Update {
		// A client may write back a pod that it read before it had a priority; the priority must
		// survive.
		if old, ok := a.OldObject.(*corev1.Pod); ok {
			if pod.Spec.Priority == nil {
				pod.Spec.Priority = old.Spec.Priority
			}
			if pod.Spec.PreemptionPolicy == nil {
				pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
			}
		}
		return nil
	}
	if a.Operation != Create {
		return nil
	}
	return p.resolve(ctx, a, pod)
}

func (p priority) resolve(ctx context.Context, a *Attributes, pod *corev1.Pod) error {
	value, policy := int32(0), corev1.PreemptLowerPriority
	class, err := p.classOf(ctx, pod.Spec.PriorityClassName)
	switch {
	case apierrors.IsNotFound(err):
		return a.forbid(fmt.Errorf("no PriorityClass with name %v was found", pod.Spec.PriorityClassName))
	case err != nil:
		return err
	case class != nil:
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if pod.Spec.Priority != nil && *pod.Spec.Priority != value {
		return a.forbid(fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *pod.Spec.Priority, value))
	}
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy != policy {
		return a.forbid(fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *pod.Spec.PreemptionPolicy, policy))
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &value, &policy
	return nil
}

// classOf returns the class with a name. Without a name, it returns the global default with the
// lowest value, or nil.
func (p priority) classOf(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		return p.globalDefault("")
	}
	class, err := p.classes.Find(ctx, "", name)
	if apierrors.IsNotFound(err) {
		// The first pods of a cluster may be created before its classes.
		for _, system := range SystemPriorityClasses() {
			if system.Name == name {
				return system, nil
			}
		}
	}
	return class, err
}

// globalDefault returns the default class with the lowest value, ignoring the class named except.
func (p priority) globalDefault(except string) (*schedulingv1.PriorityClass, error) {
	view, err := p.classes.View()
	if err != nil {
		return nil, err
	}
	var found *schedulingv1.PriorityClass
	for _, class := range view.List("", nil) {
		if class.GlobalDefault && class.Name != except && (found == nil || class.Value < found.Value) {
			found = class
		}
	}
	return found, nil
}

// Validate implements Validator. It refuses a second global default.
func (p priority) Validate(_ context.Context, a *Attributes) error {
	class, ok := a.Object.(*schedulingv1.PriorityClass)
	if !ok || !a.is(schedulingv1.GroupName, "priorityclasses", "") || !class.GlobalDefault {
		return nil
	}
	other, err := p.globalDefault(class.Name)
	if err != nil {
		return err
	}
	if other != nil {
		return a.forbid(fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
