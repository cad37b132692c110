package apiserver

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"reflect"
)

// checkApplied holds an applied configuration to the field validation asked for, and to its own kind.
func (op *operation) checkApplied(applied map[string]any, strictErr error, p patchRequest) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: applied}
	e := op.endpoint
	if gvk := u.GroupVersionKind(); gvk.Kind != e.gvk.Kind && gvk.Kind != "" && op.subresource == "" || gvk.Kind == "" || gvk.Version == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the applied object must be a %s of %s; got %q %q", e.gvk.Kind, e.gvk.GroupVersion(), u.GetAPIVersion(), u.GetKind()))
	}
	if u.GetManagedFields() != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	if p.validation == metav1.FieldValidationIgnore {
		return u, nil
	}
	problems := op.fieldProblems(applied, strictErr, p)
	if len(problems) == 0 {
		return u, nil
	}
	if p.validation == metav1.FieldValidationStrict {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", runtime.NewStrictDecodingError(problems)))
	}
	for _, problem := range problems {
		op.warn(problem.Error())
	}
	return u, nil
}

// fieldProblems are duplicate and unknown fields of an applied configuration.
func (op *operation) fieldProblems(applied map[string]any, strictErr error, p patchRequest) []error {
	var problems []error
	if strictErr != nil {
		for line := range strings.SplitSeq(strictErr.Error(), "\n") {
			if strings.Contains(line, "already set in map") {
				problems = append(problems, errors.New("yaml: "+strings.TrimSpace(line)))
			}
		}
	}
	if op.endpoint.gvk != op.endpoint.hub {
		return problems // the field manager says what it can not take
	}
	doc, err := yaml.Marshal(applied)
	if err != nil {
		return append(problems, err)
	}
	if doc, err = yaml.YAMLToJSON(doc); err != nil {
		return append(problems, err)
	}
	strict, err := kjson.UnmarshalStrict(doc, op.endpoint.newObject())
	if err != nil {
		return problems
	}
	return append(problems, strict...)
}

// newLike is an empty object of the same Go type.
func newLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}
