package why

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/architecture"
)

// Causes of Components and Systems that do not conform.
const (
	causeComponentRequirement = "component-requirement"
	causeComponentCircle      = "component-circle"
	causeComponentLayer       = "component-layer"
	causeComponentForbidden   = "component-forbidden"
	causeComponentTraffic     = "component-traffic"
	causeComponentAccess      = "component-access"
	causeComponentLevels      = "component-levels"
	causeComponentPolicies    = "component-policies"
	causeSystemMembers        = "system-members"
	causeSystemComponents     = "system-components"
)

// componentKind is the Kind of a Ref to a Component.
const componentKind = "Component.architecture.knarr.io"

// contradictions are the findings about a Component by condition, in the order of findings.
var contradictions = []struct{ condition, cause, problem, remedy string }{
	{architecture.RequirementsMet, causeComponentRequirement, "its requirements are not met", "Correct spec.requires, or repair the required component."},
	{architecture.Acyclic, causeComponentCircle, "it is part of a circle", "Remove one requirement of the circle, for example by an event or a common third component."},
	{architecture.LayersRespected, causeComponentLayer, "it breaks the order of layers", "Correct spec.layer, or remove the requirement on a higher layer."},
	{architecture.DependenciesAllowed, causeComponentForbidden, "a system does not allow its requirement", "Remove the requirement, or change spec.forbidden or spec.entrances of the system."},
	{architecture.TrafficDeclared, causeComponentTraffic, "it has connections that are not declared", "Add the connection to spec.requires, spec.requiresOutside or spec.exposed, or remove it from the program."},
	{architecture.AccessMinimal, causeComponentAccess, "its service accounts may do more than it declares", "Remove the rule or the binding, or declare the access in spec.data or spec.access."},
	{architecture.LevelsKept, causeComponentLevels, "it does not keep its levels", "Repair its workloads, or run more replicas."},
	{architecture.PoliciesApplied, causeComponentPolicies, "its network policies are not in force", "Do what the message says; the policies follow."},
}

// component explains a Component that does not conform.
func component(s *Snapshot, o runtime.Object) (out []Finding) {
	c := &architecture.Component{}
	if u, ok := o.(*unstructured.Unstructured); !ok || architecture.From(u, c) != nil {
		return nil
	}
	for _, k := range contradictions {
		f := failing(c.Status.Conditions, k.condition, k.cause, k.problem, k.remedy)
		if f == nil {
			continue
		}
		switch {
		case k.condition == architecture.LevelsKept:
			f.links = unready(c)
		case k.condition == architecture.RequirementsMet:
			f.links = requiredWorkloads(s, c, f)
		}
		out = append(out, *f)
	}
	return out
}

// failing returns the finding about a condition that is False.
func failing(conditions []metav1.Condition, condition, cause, problem, remedy string) *Finding {
	c := meta.FindStatusCondition(conditions, condition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return &Finding{
		Cause: cause, Problem: problem + ": " + strings.TrimSuffix(oneLine(clean(c.Message, maxText)), ".") + ".", Remedy: remedy,
		Evidence: []Fact{{Text: "condition " + condition + " is False: " + oneLine(c.Reason)}},
	}
}

// unready links to the workloads of a Component that lack ready pods.
func unready(c *architecture.Component) (links []Link) {
	for _, w := range c.Status.Workloads {
		if w.Ready < w.Desired {
			links = append(links, Link{Object: Ref{w.Kind, c.Namespace, w.Name}})
		}
	}
	return links
}

// requiredWorkloads links to the workloads of required Components without a ready pod.
func requiredWorkloads(s *Snapshot, c *architecture.Component, f *Finding) (links []Link) {
	for _, r := range c.Spec.Requires {
		namespace := r.Namespace
		if namespace == "" {
			namespace = c.Namespace
		}
		o, _ := s.lookup(architecture.Components.GroupResource(), namespace, r.Component)
		u, ok := o.(*unstructured.Unstructured)
		required := &architecture.Component{}
		if r.Optional || !ok || architecture.From(u, required) != nil || required.Status.Ready > 0 {
			continue
		}
		ref := Ref{componentKind, namespace, r.Component}
		if len(required.Status.Workloads) == 0 {
			f.Evidence = append(f.Evidence, Fact{Text: "no workload has the labels that component " + r.Component + " selects", Object: &ref})
		}
		links = append(append(links, unready(required)...), Link{Object: ref})
	}
	return links
}

// system explains a System that does not conform.
func system(s *Snapshot, o runtime.Object) (out []Finding) {
	sys := &architecture.System{}
	if u, ok := o.(*unstructured.Unstructured); !ok || architecture.From(u, sys) != nil {
		return nil
	}
	if f := failing(sys.Status.Conditions, architecture.MembersFound, causeSystemMembers, "it names what does not exist", "Correct the names, or create the objects."); f != nil {
		out = append(out, *f)
	}
	if !slices.ContainsFunc(sys.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == architecture.ComponentsConform && c.Status == metav1.ConditionFalse
	}) {
		return out
	}
	f := Finding{Cause: causeSystemComponents, Problem: fmt.Sprintf("%d of its %d components do not conform.", sys.Status.Count-sys.Status.Conforming, sys.Status.Count)}
	for _, ref := range sys.Status.Components {
		o, _ := s.lookup(architecture.Components.GroupResource(), ref.Namespace, ref.Name)
		u, ok := o.(*unstructured.Unstructured)
		c := &architecture.Component{}
		if ok && architecture.From(u, c) == nil && meta.IsStatusConditionFalse(c.Status.Conditions, architecture.Conforms) && len(f.links) < maxLinks {
			f.links = append(f.links, Link{Object: Ref{componentKind, ref.Namespace, ref.Name}})
		}
	}
	if len(f.links) == 0 {
		f.Remedy = "kubectl get components -A shows which, and why."
	}
	return append(out, f)
}
