package architecture

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// maxMessage is the maximum length of a condition's message in the API.
const maxMessage = 32768

// judgeComponent applies the Component's policies and writes its status.
func (a *architect) judgeComponent(ctx context.Context, ref architecture.ComponentReference) (controller.Result, error) {
	m := a.current()
	c := m.Component(ref)
	obj, shown := a.components.Get(ref.Namespace, ref.Name)
	if c == nil || !shown {
		return controller.Result{}, nil // the garbage collector deletes its policies
	}
	seen, again := a.observe(m, c)
	var err error
	if seen.Policies, seen.Hosts, seen.Problem, err = a.apply(ctx, m, c); err != nil {
		return controller.Result{}, err
	}
	status := architecture.ComponentStatus{
		ObservedGeneration: c.Generation, Conditions: storedConditions(obj), Workloads: seen.Workloads[:min(len(seen.Workloads), architecture.MaxWorkloads)],
		Ready: seen.Ready, Desired: seen.Desired, Systems: m.SystemsOf(ref), Policies: seen.Policies,
	}
	a.tell(obj, m.Judge(ref, seen), &status.Conditions, c.Generation)
	return controller.Result{After: again}, a.writeStatus(ctx, architecture.Components, obj, &status)
}

// judgeSystem writes the status of a System.
func (a *architect) judgeSystem(ctx context.Context, name string) error {
	m := a.current()
	s := m.System(name)
	obj, shown := a.systems.Get("", name)
	if s == nil || !shown {
		return nil
	}
	judgements, conforming := m.JudgeSystem(name, func(ref architecture.ComponentReference) []metav1.Condition {
		if c, ok := a.components.Get(ref.Namespace, ref.Name); ok {
			return storedConditions(c)
		}
		return nil
	})
	members := m.Members(name)
	status := architecture.SystemStatus{
		ObservedGeneration: s.Generation, Conditions: storedConditions(obj), Components: members[:min(len(members), architecture.MaxMembers)],
		Count: int32(len(members)), Conforming: conforming,
	}
	a.tell(obj, judgements, &status.Conditions, s.Generation)
	return a.writeStatus(ctx, architecture.Systems, obj, &status)
}

// storedConditions returns a copy of the conditions in an object's status.
func storedConditions(obj runtime.Object) []metav1.Condition {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var have struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": status}, &have); err != nil {
		return nil // a malformed status is written anew
	}
	return have.Status.Conditions
}

// tell sets the conditions, and records an Event for each that has become False or says something
// new.
func (a *architect) tell(obj runtime.Object, judgements []architecture.Judgement, conditions *[]metav1.Condition, generation int64) {
	for _, j := range judgements {
		if len(j.Message) > maxMessage {
			j.Message = strings.ToValidUTF8(j.Message[:maxMessage-3], "") + "..."
		}
		old := meta.FindStatusCondition(*conditions, j.Type)
		news := old == nil || old.Status != j.Status || old.Message != j.Message
		switch {
		case !news || j.Type == architecture.ComponentsConform:
		case j.Status == metav1.ConditionFalse && j.Type != architecture.Conforms:
			a.env.Events.Eventf(obj, nil, corev1.EventTypeWarning, j.Reason, "Compare", "%s", j.Message)
		case j.Status == metav1.ConditionTrue && j.Type == architecture.Conforms && old != nil && old.Status == metav1.ConditionFalse:
			a.env.Events.Eventf(obj, nil, corev1.EventTypeNormal, architecture.Conforms, "Compare", "%s", j.Message)
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: j.Type, Status: j.Status, Reason: j.Reason, Message: j.Message, ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(a.env.Now().Truncate(time.Second)),
		})
	}
}

// writeStatus writes a status, which is a pointer to a struct, if it differs from the stored one.
func (a *architect) writeStatus(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, status any) error {
	u := obj.(*unstructured.Unstructured)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return controller.Terminal(fmt.Errorf("status of %s %s: %w", u.GetKind(), u.GetName(), err))
	}
	if have, _, _ := unstructured.NestedMap(u.Object, "status"); equality.Semantic.DeepEqual(have, content) {
		return nil
	}
	u = u.DeepCopy()
	u.Object["status"] = content
	_, err = a.env.Client.Update(ctx, res, u, metav1.UpdateOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// apply makes the NetworkPolicies that the model wants, and deletes the Component's others. It does
// not touch policies that the Component does not own.
func (a *architect) apply(ctx context.Context, m *architecture.Model, c *architecture.Component) (names, hosts []string, problem string, err error) {
	wanted, hosts := m.Policies(c.Reference(), a.addresses())
	keep := map[string]bool{}
	for _, want := range wanted {
		keep[want.Name] = true
		have, ok := a.policies.Get(want.Namespace, want.Name)
		switch {
		case !ok:
			_, err = client.Create(ctx, a.env.Client, want)
			if apierrors.IsAlreadyExists(err) {
				err = apierrors.NewConflict(networkingv1.Resource("networkpolicies"), want.Name, err)
			}
		case !metav1.IsControlledBy(have, c):
			problem = fmt.Sprintf("NetworkPolicy %s exists and does not belong to the component. Rename or delete it.", want.Name)
			continue
		case !equality.Semantic.DeepEqual(have.Spec, want.Spec) || have.Labels[architecture.ComponentLabel] != want.Labels[architecture.ComponentLabel] ||
			have.Annotations[architecture.ComponentAnnotation] != c.Name:
			have = have.DeepCopy()
			have.Spec = want.Spec
			have.Labels = merged(have.Labels, want.Labels)
			have.Annotations = merged(have.Annotations, want.Annotations)
			_, err = client.Update(ctx, a.env.Client, have)
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			problem, err = fmt.Sprintf("NetworkPolicy %s is refused: %v", want.Name, err), nil
			continue
		}
		if err != nil {
			return nil, nil, "", fmt.Errorf("apply NetworkPolicy %s/%s: %w", want.Namespace, want.Name, err)
		}
		names = append(names, want.Name)
	}
	for _, have := range a.policies.List(c.Namespace, labels.Everything()) {
		if keep[have.Name] || !metav1.IsControlledBy(have, c) {
			continue
		}
		uid := have.UID
		if err := client.Delete[*networkingv1.NetworkPolicy](ctx, a.env.Client, have.Namespace, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil && !apierrors.IsNotFound(err) {
			return nil, nil, "", fmt.Errorf("delete NetworkPolicy %s/%s: %w", have.Namespace, have.Name, err)
		}
	}
	return names, hosts, problem, nil
}

func merged(into, from map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}
