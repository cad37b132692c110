package scheduling

import (
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func PodGroupStrategy() *strategy.Strategy {
	s := strategy.WithStatus(true)
	s.KeepMetadataInStatus()
	s.Default = strategy.On(defaultPodGroup)
	s.DropFields(func(obj, old runtime.Object) {
		was, _ := old.(*schedulingv1alpha2.PodGroup)
		dropPodGroupFields(obj.(*schedulingv1alpha2.PodGroup), was)
	})
	s.ValidateCreate = strategy.Checks(validatePodGroup)
	s.ValidateUpdate = strategy.ChecksBoth(validatePodGroupUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validatePodGroupStatus)
	return strategy.Show(s, podGroupColumns, podGroupRow)
}

func defaultPodGroup(g *schedulingv1alpha2.PodGroup) {
	strategy.SetPointer(&g.Spec.DisruptionMode, schedulingv1alpha2.DisruptionModePod)
}

// dropPodGroupFields clears fields of features that are off: TopologyAwareWorkloadScheduling,
// DRAWorkloadResourceClaims and WorkloadAwarePreemption.
func dropPodGroupFields(g, old *schedulingv1alpha2.PodGroup) {
	var was schedulingv1alpha2.PodGroupSpec
	if old != nil {
		was = old.Spec
	}
	if was.SchedulingConstraints == nil {
		g.Spec.SchedulingConstraints = nil
	}
	if was.ResourceClaims == nil {
		g.Spec.ResourceClaims = nil
	}
	if was.DisruptionMode == nil {
		g.Spec.DisruptionMode = nil
	}
	if was.PriorityClassName == "" {
		g.Spec.PriorityClassName = ""
	}
	if was.Priority == nil {
		g.Spec.Priority = nil
	}
}

func validatePodGroup(g *schedulingv1alpha2.PodGroup) field.ErrorList {
	var errs field.ErrorList
	if ref := g.Spec.PodGroupTemplateRef; ref != nil {
		errs = append(errs, validateTemplateRef(ref, validate.SpecPath.Child("podGroupTemplateRef"))...)
	}
	return append(errs, validatePolicy(&g.Spec.SchedulingPolicy, validate.SpecPath.Child("schedulingPolicy"))...)
}

func validateTemplateRef(ref *schedulingv1alpha2.PodGroupTemplateReference, at *field.Path) field.ErrorList {
	if ref.Workload == nil {
		return field.ErrorList{field.Invalid(at, "", "must specify one of: `workload`")}
	}
	at = at.Child("workload")
	errs := validate.RequiredSubdomain(ref.Workload.WorkloadName, at.Child("workloadName"))
	return append(errs, requiredLabel(ref.Workload.PodGroupTemplateName, at.Child("podGroupTemplateName"))...)
}

func requiredLabel(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return validate.Label(value, at)
}

func validatePolicy(p *schedulingv1alpha2.PodGroupSchedulingPolicy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case p.Basic == nil && p.Gang == nil:
		errs = append(errs, field.Invalid(at, "", "must specify one of: `basic`, `gang`"))
	case p.Basic != nil && p.Gang != nil:
		errs = append(errs, field.Invalid(at, "{basic, gang}", "must specify exactly one of: `basic`, `gang`"))
	}
	if p.Gang == nil {
		return errs
	}
	switch least := at.Child("gang", "minCount"); {
	case p.Gang.MinCount == 0:
		errs = append(errs, field.Required(least, ""))
	case p.Gang.MinCount < 0:
		errs = append(errs, field.Invalid(least, p.Gang.MinCount, "must be greater than or equal to 1"))
	}
	return errs
}

func validatePodGroupUpdate(g, old *schedulingv1alpha2.PodGroup) field.ErrorList {
	at := validate.SpecPath
	errs := unchanged(g.Spec.PodGroupTemplateRef, old.Spec.PodGroupTemplateRef, at.Child("podGroupTemplateRef"))
	errs = append(errs, unchanged(g.Spec.SchedulingPolicy, old.Spec.SchedulingPolicy, at.Child("schedulingPolicy"))...)
	errs = append(errs, unchanged(g.Spec.ResourceClaims, old.Spec.ResourceClaims, at.Child("resourceClaims"))...)
	// These belong to features that are off. The old object may have them.
	for name, values := range map[string][2]any{
		"schedulingConstraints": {g.Spec.SchedulingConstraints, old.Spec.SchedulingConstraints},
		"disruptionMode":        {g.Spec.DisruptionMode, old.Spec.DisruptionMode},
		"priorityClassName":     {g.Spec.PriorityClassName, old.Spec.PriorityClassName},
		"priority":              {g.Spec.Priority, old.Spec.Priority},
	} {
		if !validate.Equal(values[0], values[1]) {
			errs = append(errs, field.Forbidden(at.Child(name), ""))
		}
	}
	return errs
}

func unchanged(value, old any, at *field.Path) field.ErrorList {
	if validate.Equal(value, old) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, nil, "field is immutable")}
}

// validatePodGroupStatus leaves out statuses of claims: no group has claims while their feature is
// off.
func validatePodGroupStatus(g, _ *schedulingv1alpha2.PodGroup) field.ErrorList {
	return metavalidation.ValidateConditions(g.Status.Conditions, field.NewPath("status", "conditions"))
}

var podGroupColumns = columns.Define("Name", "Policy=SchedulingPolicy defines the scheduling policy for this instance of the PodGroup. Controllers are expected to fill this field by copying it from a PodGroupTemplate. This field is immutable.",
	"Workload=Name of the referenced Workload object", "Status=Status of the PodGroup", "Age")

func podGroupRow(g *schedulingv1alpha2.PodGroup, now metav1.Time) []any {
	policy, workload, status := "Basic", columns.None, "Pending"
	if g.Spec.SchedulingPolicy.Gang != nil {
		policy = "Gang"
	}
	if ref := g.Spec.PodGroupTemplateRef; ref != nil && ref.Workload != nil {
		workload = ref.Workload.WorkloadName
	}
	if c := apimeta.FindStatusCondition(g.Status.Conditions, schedulingv1alpha2.PodGroupScheduled); c != nil {
		status = "Unschedulable"
		if c.Status == metav1.ConditionTrue {
			status = "Scheduled"
		}
	}
	if c := apimeta.FindStatusCondition(g.Status.Conditions, schedulingv1alpha2.DisruptionTarget); c != nil {
		status = c.Reason
	}
	return []any{g.Name, policy, workload, status, columns.AgeOf(g, now)}
}
