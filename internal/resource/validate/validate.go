// Package validate holds checks of single fields that several kinds share: names, numbers,
// addresses, resource names and node selectors. It knows no kind. Messages are those of upstream.
package validate

import (
	"math"
	"regexp"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func EqualPointers[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

const Mismatch = "`selector` does not match template `labels`"

var SpecPath = field.NewPath("spec")

// Count is a number in a status and its field.
type Count struct {
	Name  string
	Value int32
}

func CountOf(name string, value int32) Count { return Count{name, value} }

func NonNegativeCounts(path *field.Path, counts ...Count) field.ErrorList {
	var errs field.ErrorList
	for _, c := range counts {
		errs = append(errs, NonNegative(int64(c.Value), path.Child(c.Name))...)
	}
	return errs
}

// OptionalNonNegative checks a number that may be absent.
func OptionalNonNegative[T int32 | int64](value *T, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	return NonNegative(int64(*value), path)
}

// RequiredSegment checks a name that becomes a segment of a URL.
func RequiredSegment(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return Invalids(at, value, path.IsValidPathSegmentName(value))
}

// Invalids makes an Invalid error of each message, as functions of util/validation return them.
func Invalids(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func Label(value string, path *field.Path) field.ErrorList {
	return Invalids(path, value, validation.IsDNS1123Label(value))
}

func Subdomain(value string, path *field.Path) field.ErrorList {
	return Invalids(path, value, validation.IsDNS1123Subdomain(value))
}

// RequiredSubdomain checks a DNS subdomain that must be present.
func RequiredSubdomain(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Subdomain(value, path)
}

func Qualified(value string, path *field.Path) field.ErrorList {
	return Invalids(path, value, validation.IsQualifiedName(value))
}

func Port(port int32, path *field.Path) field.ErrorList {
	return Invalids(path, port, validation.IsValidPortNum(int(port)))
}

// PortNumOrName checks a target port: a number or a name.
func PortNumOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	switch port.Type {
	case intstr.String:
		return Invalids(path, port.StrVal, validation.IsValidPortName(port.StrVal))
	case intstr.Int:
		return Invalids(path, port.IntValue(), validation.IsValidPortNum(port.IntValue()))
	}
	return field.ErrorList{field.InternalError(path, errIntOrString(port.Type))}
}

type errIntOrString intstr.Type

func (e errIntOrString) Error() string { return "unknown type of int or string" }

func NonNegative(value int64, path *field.Path) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(value, path)
}

// Immutable refuses a change of a field: "field is immutable".
func Immutable(obj, old any, path *field.Path) field.ErrorList {
	return apivalidation.ValidateImmutableField(obj, old, path)
}

// OneOf refuses a value that is not allowed; an empty value is reported as missing.
func OneOf[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(allowed, value):
		return field.ErrorList{field.NotSupported(path, value, allowed)}
	}
	return nil
}

// NotSupportedUnless refuses a value that is not allowed, including the empty one.
func NotSupportedUnless[T ~string](value T, path *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func Selector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
}

// Quantity refuses a negative quantity.
func Quantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg)}
	}
	return nil
}

// PositiveQuantity refuses a quantity that is not greater than zero.
func PositiveQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// PositiveIntOrPercent checks that a number or percentage is not negative.
func PositiveIntOrPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	switch v.Type {
	case intstr.String:
		return Invalids(path, v, validation.IsValidPercent(v.StrVal))
	case intstr.Int:
		return NonNegative(int64(v.IntValue()), path)
	}
	return field.ErrorList{field.InternalError(path, errIntOrString(v.Type))}
}

// AtMostHundredPercent refuses a percentage above 100%.
func AtMostHundredPercent(v intstr.IntOrString, path *field.Path) field.ErrorList {
	if percent, ok := PercentOf(v); ok && percent > 100 {
		return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
	}
	return nil
}

// PercentOf returns a percentage's number; ok is false if v is not a percentage.
func PercentOf(v intstr.IntOrString) (percent int, ok bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) != 0 {
		return 0, false
	}
	for _, digit := range v.StrVal[:len(v.StrVal)-1] {
		if percent > math.MaxInt32 {
			break
		}
		percent = percent*10 + int(digit-'0')
	}
	return percent, true
}

func Equal(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }

var apiTypes = regexp.MustCompile(`\bv1\.([A-Z]\w*)`)

// Difference returns a diff with upstream's names for internal types ("core.PodSpec").
func Difference(was, is any) string {
	return apiTypes.ReplaceAllStringFunc(diff.Diff(was, is), func(name string) string {
		switch bare := strings.TrimPrefix(name, "v1."); bare {
		case "LabelSelector", "LabelSelectorRequirement", "Time", "MicroTime":
			return name
		default:
			return "core." + bare
		}
	})
}

// MaxRepeated limits repeated errors where every element of one list can conflict with every
// element of another. It is more than a client is shown.
const MaxRepeated = 10_000

const ErrAbsolutePath = "must be an absolute path"

func Required(at *field.Path, name, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at.Child(name), "")}
	}
	return nil
}

// TemplateMeta refuses metadata other than labels and annotations: the claims made from a
// template get no other.
func TemplateMeta(m *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(m.Labels, at.Child("labels"))...)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"name", m.Name != ""}, {"generateName", m.GenerateName != ""}, {"namespace", m.Namespace != ""}, {"selfLink", m.SelfLink != ""}, {"uID", m.UID != ""},
		{"resourceVersion", m.ResourceVersion != ""}, {"generation", m.Generation != 0}, {"creationTimestamp", !m.CreationTimestamp.IsZero()},
		{"deletionTimestamp", m.DeletionTimestamp != nil}, {"deletionGracePeriodSeconds", m.DeletionGracePeriodSeconds != nil},
		// Even empty lists.
		{"ownerReferences", m.OwnerReferences != nil}, {"finalizers", m.Finalizers != nil}, {"managedFields", m.ManagedFields != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), "cannot be set"))
		}
	}
	return errs
}

// SelectsNoLabel reports whether a selector has a value that no label can have.
func SelectsNoLabel(s *metav1.LabelSelector) bool {
	return s != nil && slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return slices.ContainsFunc(r.Values, func(v string) bool { return len(validation.IsValidLabelValue(v)) > 0 })
	})
}

// OneOfIfSet refuses a value that is not allowed. Defaults are set already, so nil means that the
// kind lacks the field.
func OneOfIfSet[T ~string](value *T, at *field.Path, allowed ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return NotSupportedUnless(*value, at, allowed...)
}

func Deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
