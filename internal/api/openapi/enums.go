package openapi

import (
	"fmt"
	"reflect"
	"strings"
)

//go:generate go run ../../../hack/enumgen zz_generated_enums.go

// enumValue is an allowed value of a field and its description.
type enumValue struct{ text, doc string }

func typeKey(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// enumText returns the part of a field's description that lists the values of its type; empty for
// types that accept any value.
func enumText(of reflect.Type, f reflect.StructField) string {
	t := f.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	values := enumerations[typeKey(t)]
	if len(values) == 0 {
		return ""
	}
	var b strings.Builder
	if apartFields[typeKey(of)+"."+f.Name] {
		b.WriteString("\n")
	}
	b.WriteString("\n\nPossible enum values:")
	for _, v := range values {
		fmt.Fprintf(&b, "\n - `%q`", v.text)
		if v.doc != "" {
			b.WriteString(" " + v.doc)
		}
	}
	return b.String()
}
