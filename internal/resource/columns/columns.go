// Package columns holds what the printer columns of all kinds share: their definitions, and texts
// for ages, selectors and missing values.
package columns

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Created are the columns of kinds that have nothing else to show.
var Created = Define("Name", "Created At:date")

func CreatedRow(obj metav1.Object, _ metav1.Time) []any {
	return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z")}
}

var NameAndAge = Define("Name", "Age")

func NameAndAgeRow(obj metav1.Object, now metav1.Time) []any {
	return []any{obj.GetName(), AgeOf(obj, now)}
}

// SelectorText writes a selector in the form of the command line; an invalid selector becomes its
// error.
func SelectorText(s *metav1.LabelSelector) string {
	if s == nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "<invalid>"
	}
	return selector.String()
}

// Title writes a boolean as "True" or "False".
func Title(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// Cells that kubectl prints for missing values.
const (
	None    = "<none>"
	Unknown = "<unknown>"
	Unset   = "<unset>"
)

var metaDocs = metav1.ObjectMeta{}.SwaggerDoc()

// Define reads column definitions from a short form. "Ready" is a string column, "Desired:integer"
// an integer column; a leading "+" puts the column into the wide table only. The column's
// description is the text after "=". "@" names a field instead, whose description in the API
// reference is used.
func Define(specs ...string) []metav1.TableColumnDefinition {
	list := make([]metav1.TableColumnDefinition, 0, len(specs))
	for _, spec := range specs {
		head, meaning := spec, ""
		if i := strings.IndexAny(spec, "=@"); i > 0 {
			head, meaning = spec[:i], strings.TrimPrefix(spec[i:], "=")
		}
		name, kind, typed := strings.Cut(head, ":")
		c := metav1.TableColumnDefinition{Name: name, Type: "string", Description: meaning}
		if typed {
			c.Type = kind
		}
		if wide, ok := strings.CutPrefix(name, "+"); ok {
			c.Name, c.Priority = wide, 1
		}
		switch c.Name {
		case "Name":
			c.Format, c.Description = "name", metaDocs["name"]
		case "Attacher":
			c.Format = "name"
		case "Age", "Created At":
			c.Description = metaDocs["creationTimestamp"]
		}
		list = append(list, c)
	}
	return list
}

// Explain fills in the API reference's description of each column that names a field of t.
func Explain(list []metav1.TableColumnDefinition, t reflect.Type) []metav1.TableColumnDefinition {
	list = slices.Clone(list)
	for i := range list {
		if path, ok := strings.CutPrefix(list[i].Description, "@"); ok {
			list[i].Description = fieldDoc(t, strings.Split(path, "."))
		}
	}
	return list
}

// fieldDoc returns the API reference's description of a field. A path without a field is a
// programming error: it panics.
func fieldDoc(t reflect.Type, path []string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == path[0] && len(path) > 1:
			return fieldDoc(f.Type, path[1:])
		case name == path[0]:
			return reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }).SwaggerDoc()[name]
		}
	}
	panic(fmt.Sprintf("resource: %s has no field %s", t, strings.Join(path, ".")))
}

// Age formats the time since t as kubectl does.
func Age(t, now metav1.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

func AgeOf(obj metav1.Object, now metav1.Time) string { return Age(obj.GetCreationTimestamp(), now) }

// OrNone returns text, or "<none>" when text is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}

// FirstFew lists at most limit items, followed by the number of the others.
func FirstFew(items []string, limit int, empty string) string {
	if len(items) == 0 {
		return empty
	}
	if len(items) > limit {
		return fmt.Sprintf("%s + %d more...", strings.Join(items[:limit], ","), len(items)-limit)
	}
	return strings.Join(items, ",")
}
