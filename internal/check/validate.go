package check

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
)

// toHub converts the decoded object to the version in memory and sets defaults, as the API server
// does with every request.
func (o *object) toHub() {
	hub := o.sent.DeepCopyObject()
	if o.kind.custom == nil {
		hub.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		converted, err := api.Convert(hub, o.kind.hub())
		if err != nil {
			o.fail("", err.Error())
			return
		}
		hub = converted
	}
	if o.kind.strategy != nil && o.kind.strategy.Default != nil {
		o.kind.strategy.Default(hub)
	}
	o.hub = hub
	m := o.accessor()
	switch {
	case !o.kind.Namespaced:
		if ns := m.GetNamespace(); ns != "" {
			o.note(Warning, "metadata.namespace", "a "+o.head.Kind+" has no namespace; the field is ignored")
		}
		m.SetNamespace("")
	case m.GetNamespace() == "":
		m.SetNamespace(o.run.Namespace)
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(m.GetGenerateName() + generatedSuffix)
	}
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	o.dropRepeatedOwners(m)
}

// dropRepeatedOwners drops equal owner references, with a warning, as the API server does.
func (o *object) dropRepeatedOwners(m metav1.Object) {
	seen := map[string]bool{}
	var once []metav1.OwnerReference
	for i, owner := range m.GetOwnerReferences() {
		key := owner.String() // the message's text has the values of pointers
		if seen[key] {
			o.note(Warning, fmt.Sprintf("metadata.ownerReferences[%d]", i), "the owner stands twice; the API server drops the second one")
			continue
		}
		seen[key] = true
		once = append(once, owner)
	}
	m.SetOwnerReferences(once)
}

// generatedSuffix stands for the random end of a generated name.
const generatedSuffix = "xxxxx"

// checkTime is the time of creation of all objects. It is fixed, so that a check of the same files
// gives the same result.
var checkTime = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// validate prepares and validates the object as a create does, without admission.
func (o *object) validate() {
	if o.hub == nil || o.kind.strategy == nil {
		return
	}
	s, m := o.kind.strategy, o.accessor()
	m.SetCreationTimestamp(checkTime)
	m.SetUID(types.UID("00000000-0000-0000-0000-000000000000"))
	obj := o.hub.DeepCopyObject()
	if s.WarningsAsSent != nil {
		o.warn(s.WarningsAsSent(obj))
	}
	if s.SetTimes != nil {
		s.SetTimes(obj, checkTime)
	}
	if s.PrepareCreate != nil {
		s.PrepareCreate(obj)
	}
	if m.GetResourceVersion() != "" && m.GetResourceVersion() != "0" {
		o.note(Warning, "metadata.resourceVersion", "a new object has no resourceVersion; kubectl create fails, and kubectl apply once the object has changed")
	}
	errs := s.ValidateNew(obj, o.kind.Namespaced)
	for _, err := range errs {
		o.reportField(err)
	}
	if len(errs) > 0 {
		return
	}
	o.ready = true
	if s.Warnings != nil {
		o.warn(s.Warnings(obj, nil))
	}
	if o.kind.custom != nil {
		if text := o.kind.custom.DeprecationWarning(); text != "" {
			o.note(Warning, "apiVersion", text)
		}
	} else if text, ok := api.Deprecated(o.kind.gvr()); ok {
		o.note(Warning, "apiVersion", text)
	}
}

// rulesSkipped begins the error that follows others of a custom resource.
const rulesSkipped = "some validation rules were not checked"

// Validation of a definition names the schema of its only version as that of all versions.
const (
	schemaOfAll = "spec.validation.openAPIV3Schema"
	schemaOfOne = "spec.versions[0].schema.openAPIV3Schema"
)

// fieldOf returns the path of an error in the object.
func (o *object) fieldOf(err *field.Error) string {
	if err.Field == "<nil>" {
		return ""
	}
	return o.ownPath(err.Field)
}

// ownPath returns the path in the object that an error's path stands for.
func (o *object) ownPath(path string) string {
	if rest, ok := strings.CutPrefix(path, schemaOfAll); ok && isDefinition(o) {
		return schemaOfOne + rest
	}
	return path
}

// supported finds the allowed values in the error of an unsupported one.
var supported = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// reportField reports an error of validation at its field.
func (o *object) reportField(err *field.Error) {
	path := o.fieldOf(err)
	if o.misspelt[path] && err.Type == field.ErrorTypeRequired || strings.HasPrefix(err.Detail, rulesSkipped) {
		return // another finding says why
	}
	if err.Type == field.ErrorTypeNotSupported {
		o.reportUnsupported(path, err.ErrorBody(), err.Detail)
		return
	}
	o.note(Error, path, err.ErrorBody())
}

// reportUnsupported reports a value that is none of the allowed ones, which the detail quotes.
func (o *object) reportUnsupported(path, message, detail string) {
	f := Finding{Severity: Error, Path: path, Message: message}
	at := find(o.node, path)
	if member := find(o.node, join(path, "type")); member.whole {
		at = member // the rule is about the kind of a strategy
	}
	node := at.mark()
	if at.whole {
		var allowed []string
		for _, quoted := range supported.FindAllString(detail, -1) {
			if value, err := strconv.Unquote(quoted); err == nil && value != at.value.Value {
				allowed = append(allowed, value)
			}
		}
		f.Nearest = nearest(at.value.Value, allowed)
		if node = at.value; len(f.Nearest) == 1 {
			f.fix = o.replace(at.value, f.Nearest[0])
		}
	}
	o.add(f, node)
}

// warn reports the API server's warnings. Most begin with the field's path.
func (o *object) warn(texts []string) {
	for _, text := range texts {
		path, message, ok := strings.Cut(text, ": ")
		if !ok || strings.ContainsAny(path, " \"") || !find(o.node, path).whole {
			path, message = "", text
		}
		o.note(Warning, path, message)
	}
}
