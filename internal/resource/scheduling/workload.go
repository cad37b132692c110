package scheduling

import (
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func WorkloadStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.DropFields(func(obj, old runtime.Object) {
		was, _ := old.(*schedulingv1alpha2.Workload)
		dropWorkloadFields(obj.(*schedulingv1alpha2.Workload), was)
	})
	s.ValidateCreate = strategy.Checks(validateWorkload)
	s.ValidateUpdate = strategy.ChecksBoth(validateWorkloadUpdate)
	return strategy.ShowAny(s, columns.NameAndAge, columns.NameAndAgeRow)
}

// dropWorkloadFields clears fields of features that are off; see dropPodGroupFields.
func dropWorkloadFields(w, old *schedulingv1alpha2.Workload) {
	for i := range w.Spec.PodGroupTemplates {
		t, was := &w.Spec.PodGroupTemplates[i], schedulingv1alpha2.PodGroupTemplate{}
		if old != nil && i < len(old.Spec.PodGroupTemplates) {
			was = old.Spec.PodGroupTemplates[i]
		}
		if was.SchedulingConstraints == nil {
			t.SchedulingConstraints = nil
		}
		if was.ResourceClaims == nil {
			t.ResourceClaims = nil
		}
		if was.DisruptionMode == nil {
			t.DisruptionMode = nil
		}
		if was.PriorityClassName == "" {
			t.PriorityClassName = ""
		}
		if was.Priority == nil {
			t.Priority = nil
		}
	}
}

func validateWorkload(w *schedulingv1alpha2.Workload) field.ErrorList {
	var errs field.ErrorList
	if ref := w.Spec.ControllerRef; ref != nil {
		at := validate.SpecPath.Child("controllerRef")
		if ref.APIGroup != "" {
			errs = append(errs, validate.Subdomain(ref.APIGroup, at.Child("apiGroup"))...)
		}
		errs = append(errs, validate.RequiredSegment(ref.Kind, at.Child("kind"))...)
		errs = append(errs, validate.RequiredSegment(ref.Name, at.Child("name"))...)
	}
	templates, at := w.Spec.PodGroupTemplates, validate.SpecPath.Child("podGroupTemplates")
	switch {
	case len(templates) == 0:
		return append(errs, field.Required(at, ""))
	case len(templates) > schedulingv1alpha2.WorkloadMaxPodGroupTemplates:
		return append(errs, field.TooMany(at, len(templates), schedulingv1alpha2.WorkloadMaxPodGroupTemplates))
	}
	seen := map[string]bool{}
	for i := range templates {
		if name := templates[i].Name; seen[name] {
			errs = append(errs, field.Duplicate(at.Index(i), templates[i]))
		}
		seen[templates[i].Name] = true
	}
	for i := range templates {
		errs = append(errs, requiredLabel(templates[i].Name, at.Index(i).Child("name"))...)
		errs = append(errs, validatePolicy(&templates[i].SchedulingPolicy, at.Index(i).Child("schedulingPolicy"))...)
	}
	return errs
}

func validateWorkloadUpdate(w, old *schedulingv1alpha2.Workload) field.ErrorList {
	errs := unchanged(w.Spec.ControllerRef, old.Spec.ControllerRef, validate.SpecPath.Child("controllerRef"))
	return append(errs, unchanged(w.Spec.PodGroupTemplates, old.Spec.PodGroupTemplates, validate.SpecPath.Child("podGroupTemplates"))...)
}
