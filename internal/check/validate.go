package check

import (
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
	if rest, ok := strings.CutPrefix(err.Field, schemaOfAll); ok && isDefinition(o) {
		return schemaOfOne + rest
	}
	return err.Field
}

// supported finds the allowed values in the error of an unsupported one.
var supported = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// reportField reports an error of validation at its field.
func (o *object) reportField(err *field.Error) {
	path := o.fieldOf(err)
	if o.misspelt[path] && err.Type == field.ErrorTypeRequired || strings.HasPrefix(err.Detail, rulesSkipped) {
		return // another finding says why
	}
	f := Finding{Severity: Error, Path: path, Message: err.ErrorBody()}
	at := find(o.node, path)
	node := at.mark()
	if err.Type == field.ErrorTypeNotSupported && at.whole {
		var allowed []string
		for _, quoted := range supported.FindAllString(err.Detail, -1) {
			if value, unquoteErr := strconv.Unquote(quoted); unquoteErr == nil {
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
