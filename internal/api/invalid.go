package api

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxCauses limits the field errors in one response.
	MaxCauses = 1000
	// maxCausesBytes limits their total length; the first error is always sent.
	maxCausesBytes = 2 << 20
)

// Invalid returns the error 422 with an object's field errors. It keeps only the first MaxCauses,
// because the library rewrites the joined message for every further error: for 400,000 invalid
// finalizers, which fit into one request, it would copy terabytes.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	return apierrors.NewInvalid(kind, name, firstOf(errs))
}

// Together joins field errors into one error; of very many, only the first.
func Together(errs field.ErrorList) error { return firstOf(errs).ToAggregate() }

// firstOf returns the first errors; if it drops any, the last error states the total.
func firstOf(errs field.ErrorList) field.ErrorList {
	size := 0
	for i, err := range errs {
		size += len(err.Error())
		if i >= MaxCauses || i > 0 && size > maxCausesBytes {
			more := &field.Error{Type: field.ErrorTypeInvalid, Field: err.Field, BadValue: field.OmitValueType{}, Detail: fmt.Sprintf("this and what else is wrong, %d in all, is not told", len(errs)-i)}
			return append(errs[:i:i], more)
		}
	}
	return errs
}
