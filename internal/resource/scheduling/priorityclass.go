// Package scheduling holds the kinds of scheduling.k8s.io: PriorityClass, and Workload and
// PodGroup of the feature GenericWorkload.
package scheduling

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func PriorityClassStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultPriorityClass)
	s.PrepareCreate = strategy.On(func(c *schedulingv1.PriorityClass) { c.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(c, old *schedulingv1.PriorityClass) { c.Generation = old.Generation })
	s.ValidateCreate = strategy.Checks(validatePriorityClass)
	s.ValidateUpdate = strategy.ChecksBoth(validatePriorityClassUpdate)
	return strategy.Show(s, priorityClassColumns, priorityClassRow)
}

func defaultPriorityClass(c *schedulingv1.PriorityClass) {
	strategy.SetPointer(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

const (
	highestUserPriority  = int32(1000000000)
	systemPriorityPrefix = "system-"
)

// systemPriorities are the classes that the server creates itself.
var systemPriorities = map[string]int32{
	"system-node-critical":    2*highestUserPriority + 1000,
	"system-cluster-critical": 2 * highestUserPriority,
}

func validatePriorityClass(c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, systemPriorityPrefix) {
		if why := notSystemClass(c); why != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPriorityPrefix+"' prefix are reserved for system use only. error: "+why))
		}
	} else if c.Value > highestUserPriority {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	if p := c.PreemptionPolicy; p != nil {
		errs = append(errs, validate.OneOf(*p, field.NewPath("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)...)
	}
	return errs
}

func notSystemClass(c *schedulingv1.PriorityClass) string {
	value, ok := systemPriorities[c.Name]
	switch {
	case !ok:
		return fmt.Sprintf("%v is not a known system priority class", c.Name)
	case c.Value != value:
		return fmt.Sprintf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %v PriorityClass must be %v", c.Name, false)
	}
	return ""
}

func validatePriorityClassUpdate(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	// Existing pods already have the value.
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, validate.Immutable(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}

var priorityClassColumns = columns.Define("Name", "Value:integer@value", "Global-Default:boolean@globalDefault", "Age", "PreemptionPolicy@preemptionPolicy")

func priorityClassRow(c *schedulingv1.PriorityClass, now metav1.Time) []any {
	return []any{c.Name, int64(c.Value), c.GlobalDefault, columns.AgeOf(c, now), string(validate.Deref(c.PreemptionPolicy))}
}
