package apps

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ControllerRevisionStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.ValidateCreate = strategy.Checks(validateControllerRevision)
	s.ValidateUpdate = strategy.ChecksBoth(validateControllerRevisionUpdate)
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), controllerRevisionColumns, controllerRevisionRow)
}

func validateControllerRevision(r *appsv1.ControllerRevision) field.ErrorList {
	var errs field.ErrorList
	var object map[string]any
	switch {
	case r.Data.Raw == nil && r.Data.Object == nil:
		errs = append(errs, field.Required(field.NewPath("data"), "data is mandatory"))
	case r.Data.Raw != nil && json.Unmarshal(r.Data.Raw, &object) != nil:
		errs = append(errs, field.Required(field.NewPath("data"), "data must be a valid JSON object"))
	}
	return append(errs, validate.NonNegative(r.Revision, field.NewPath("revision"))...)
}

func validateControllerRevisionUpdate(r, old *appsv1.ControllerRevision) field.ErrorList {
	errs := validate.NonNegative(r.Revision, field.NewPath("revision"))
	return append(errs, validate.Immutable(r.Data, old.Data, field.NewPath("data"))...)
}

var controllerRevisionColumns = columns.Define("Name", "Controller=Controller of the object", "Revision@revision", "Age")

func controllerRevisionRow(r *appsv1.ControllerRevision, now metav1.Time) []any {
	controller := columns.None
	if ref := metav1.GetControllerOf(r); ref != nil {
		group, _, grouped := strings.Cut(ref.APIVersion, "/")
		controller = strings.ToLower(ref.Kind)
		if grouped {
			controller += "." + group
		}
		controller += "/" + ref.Name
	}
	return []any{r.Name, controller, r.Revision, columns.AgeOf(r, now)}
}
