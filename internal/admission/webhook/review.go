package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
)

// encodeObject returns an object's JSON; nil for nil.
func encodeObject(obj runtime.Object) ([]byte, error) {
	if obj == nil {
		return nil, nil
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	return raw, nil
}

// answer is a webhook's response.
type answer struct {
	allowed     bool
	result      *metav1.Status
	patch       []byte
	patchType   admissionv1.PatchType
	annotations map[string]string
	warnings    []string
}

// newReview decodes the response data of the given version. As in API clients, data may be YAML,
// and a response without a kind is decoded as the expected one. into decodes data into an object.
func newReview(version string, data []byte, into func(runtime.Object) error) (*admissionv1.AdmissionReview, error) {
	if err := bounds.Aliases(data); err != nil {
		return nil, err
	}
	if version == "v1" {
		review := &admissionv1.AdmissionReview{}
		return review, into(review)
	}
	old := &admissionv1beta1.AdmissionReview{}
	if err := into(old); err != nil {
		return nil, err
	}
	review := &admissionv1.AdmissionReview{TypeMeta: old.TypeMeta}
	if r := old.Response; r != nil {
		// v1beta1 has one type of patches only.
		review.Response = &admissionv1.AdmissionResponse{UID: r.UID, Allowed: r.Allowed, Result: r.Result, Patch: r.Patch, AuditAnnotations: r.AuditAnnotations, Warnings: r.Warnings}
	}
	return review, nil
}

// readAnswer checks a response against the API's rules. v1 is strict; v1beta1 is not. A patch from
// a validating webhook is ignored in v1beta1.
func readAnswer(review *admissionv1.AdmissionReview, version, uid string, mutating bool) (*answer, error) {
	r := review.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	a := &answer{allowed: r.Allowed, result: r.Result, annotations: r.AuditAnnotations, warnings: r.Warnings}
	if mutating {
		a.patch, a.patchType = r.Patch, admissionv1.PatchTypeJSONPatch
	}
	if version != "v1" {
		return a, nil
	}
	if r.PatchType != nil {
		a.patchType = *r.PatchType
	}
	return a, strict(review, uid, mutating)
}

// strict checks the rules of v1.
func strict(review *admissionv1.AdmissionReview, uid string, mutating bool) error {
	r := review.Response
	if string(r.UID) != uid {
		return fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	}
	want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if got := review.GroupVersionKind(); got != want {
		return fmt.Errorf("expected webhook response of %s, got %s", want.String(), got.String())
	}
	switch {
	case len(r.Patch) > 0 && !mutating:
		return errors.New("validating webhook may not return response.patch")
	case r.PatchType != nil && !mutating:
		return errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return nil
}

// maxCode is the highest status code of an HTTP response.
const maxCode = 999

// refusalCode returns the status code of a refusal, at least 400.
func refusalCode(result *metav1.Status) int {
	if result == nil {
		return http.StatusBadRequest
	}
	return max(http.StatusBadRequest, int(result.Code))
}

// refusal returns the Status for the client when the webhook does not allow the write.
func (h *hook) refusal(result *metav1.Status) error {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	status.Code = int32(refusalCode(result))
	if status.Code > maxCode {
		status.Code = http.StatusInternalServerError
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	text := fmt.Sprintf("admission webhook %q denied the request", h.name)
	switch {
	case status.Message != "":
		text += ": " + status.Message
	case status.Reason != "":
		text += ": " + string(status.Reason)
	default:
		text += " without explanation"
	}
	status.Message = text
	return &apierrors.StatusError{ErrStatus: status}
}

// report passes on warnings and audit annotations.
func (h *hook) report(a *answer, s *hookWrite) {
	for _, w := range a.warnings {
		if w != "" {
			s.Warn(w)
		}
	}
	if noted := size(a.annotations); len(a.annotations) > maxAnnotations || noted > maxAnnotationBytes {
		h.log().Warn("an admission webhook has more to say to the audit log than it may: that is left out", "webhook", h.name, "annotations", len(a.annotations), "bytes", noted)
		return
	}
	for key, value := range a.annotations {
		if key = h.name + "/" + key; len(validation.IsQualifiedName(key)) == 0 {
			s.Annotate(key, value)
		}
	}
}

// Limits for audit annotations of one answer; upstream has none.
const (
	maxAnnotations     = 1000
	maxAnnotationBytes = 1 << 20
)

func size(annotations map[string]string) int {
	n := 0
	for key, value := range annotations {
		n += len(key) + len(value)
	}
	return n
}

// patched applies a webhook's JSON patch to the object in the hook's form, which must exist.
func patched(e *encoded, operations jsonpatch.Patch) (runtime.Object, error) {
	if len(operations) == 0 {
		return nil, nil
	}
	doc, err := api.ApplyJSONPatch(operations, e.object)
	if err != nil {
		return nil, err
	}
	if slices.Equal(doc, e.object) {
		return nil, nil
	}
	return decodeLike(e, doc)
}

// decodeLike decodes a document as the kind of the hook's form. Unknown fields are dropped.
func decodeLike(e *encoded, doc []byte) (runtime.Object, error) {
	if u, ok := e.Object.(*unstructured.Unstructured); ok {
		out := u.NewEmptyInstance().(*unstructured.Unstructured)
		return out, out.UnmarshalJSON(doc)
	}
	out := admission.NewLike(e.Object)
	if err := bounds.Document(doc, out); err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, out); err != nil {
		return nil, err
	}
	if err := bounds.Raw(out); err != nil {
		return nil, err
	}
	got := out.GetObjectKind().GroupVersionKind()
	if got.Kind == "" {
		got.Kind = e.Form.Kind.Kind // a patch that removes the kind does not change it
	}
	if got.Group == "" && got.Version == "" {
		got.Group, got.Version = e.Form.Kind.Group, e.Form.Kind.Version
	}
	if got != e.Form.Kind {
		return nil, fmt.Errorf("the patched object is a %s, not a %s", got, e.Form.Kind)
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out, nil
}
