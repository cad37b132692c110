package resource

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Cells that kubectl prints for missing values.
const (
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
)

var metaDocs = metav1.ObjectMeta{}.SwaggerDoc()

// columns reads column definitions from a short form. "Ready" is a string column, "Desired:integer"
// an integer column; a leading "+" puts the column into the wide table only. The column's
// description is the text after "=". "@" names a field instead, whose description in the API
// reference is used.
func columns(specs ...string) []metav1.TableColumnDefinition {
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

// explained fills in the API reference's description of each column that names a field of t.
func explained(list []metav1.TableColumnDefinition, t reflect.Type) []metav1.TableColumnDefinition {
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

// show sets the columns of a strategy and the function that fills them.
func show[T runtime.Object](s *Strategy, specs []metav1.TableColumnDefinition, row func(obj T, now metav1.Time) []any) *Strategy {
	s.Columns = explained(specs, reflect.TypeFor[T]())
	s.Row = func(obj runtime.Object, now metav1.Time) []any { return row(obj.(T), now) }
	return s
}

// Age formats the time since t as kubectl does.
func Age(t, now metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

func ageOf(obj metav1.Object, now metav1.Time) string { return Age(obj.GetCreationTimestamp(), now) }

// orNone returns text, or "<none>" when text is empty.
func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// containerNames and containerImages fill the wide columns of every kind with a pod template.
func containerNames(spec *corev1.PodSpec) string {
	var names []string
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	return strings.Join(names, ",")
}

func containerImages(spec *corev1.PodSpec) string {
	var images []string
	for i := range spec.Containers {
		images = append(images, spec.Containers[i].Image)
	}
	return strings.Join(images, ",")
}

// firstFew lists at most limit items, followed by the number of the others.
func firstFew(items []string, limit int, empty string) string {
	if len(items) == 0 {
		return empty
	}
	if len(items) > limit {
		return fmt.Sprintf("%s + %d more...", strings.Join(items[:limit], ","), len(items)-limit)
	}
	return strings.Join(items, ",")
}

var accessModeNames = map[corev1.PersistentVolumeAccessMode]string{
	corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
}

// accessModes returns the abbreviations in a fixed order, each mode once.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var names []string
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod} {
		for _, m := range modes {
			if m == mode {
				names = append(names, accessModeNames[m])
				break
			}
		}
	}
	return strings.Join(names, ",")
}
