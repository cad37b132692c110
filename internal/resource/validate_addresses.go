package resource

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Addresses and ranges that are written in more than one way, such as 010.0.0.1, are refused (KEP-4858), unless they stood in the object before.

// addresses makes updates of a kind take addresses as they are that its objects had already.
func addresses(s *Strategy) *Strategy {
	s.ValidateUpdate, s.ValidateStatus = keepingAddresses(s.ValidateUpdate), keepingAddresses(s.ValidateStatus)
	for name, sub := range s.Subresource {
		sub.Validate = keepingAddresses(sub.Validate)
		s.Subresource[name] = sub
	}
	return s
}

func keepingAddresses(validate func(obj, old runtime.Object) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	if validate == nil {
		return nil
	}
	return func(obj, old runtime.Object) field.ErrorList {
		return slices.DeleteFunc(validate(obj, old), func(e *field.Error) bool {
			value, ok := e.BadValue.(string)
			return ok && e.Type == field.ErrorTypeInvalid && onlyTooLoose(value) && mentions(old, value)
		})
	}
}

// onlyTooLoose tells whether it is only the stricter rule that refuses an address or a range.
func onlyTooLoose(value string) bool {
	for _, check := range []func(at *field.Path, value string, strict bool, stored []string) field.ErrorList{validation.IsValidIPForLegacyField, validation.IsValidCIDRForLegacyField} {
		if len(check(nil, value, false, nil)) == 0 && len(check(nil, value, true, nil)) > 0 {
			return true
		}
	}
	return false
}

// mentions tells whether a value stands somewhere in an object.
func mentions(obj runtime.Object, value string) bool {
	data, err := json.Marshal(obj)
	return err == nil && bytes.Contains(data, []byte(strconv.Quote(value)))
}
