package openapi

import (
	"fmt"
	"reflect"
	"strings"
)

//go:generate go run ../../../hack/enumgen zz_generated_enums.go

// enumValue is one value that a field may have, and what it means.
type enumValue struct{ text, doc string }

func typeKey(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// enumText is what the description of a struct's field says about its type's values; empty for types that are open.
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
