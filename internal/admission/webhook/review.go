package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
)

// encodeObject is an object's JSON; nil for none.
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

// answer is what a webhook says.
type answer struct {
	allowed     bool
	result      *metav1.Status
	patch       []byte
	annotations map[string]string
	warnings    []string
}

// readAnswer holds a response to the rules of the API: v1 is strict, v1beta1 was not.
func readAnswer(raw []byte, version, uid string) (*answer, error) {
	var review admissionv1.AdmissionReview // v1beta1 has the same fields
	if err := json.Unmarshal(raw, &review); err != nil {
		return nil, err
	}
	r := review.Response
	if version == "v1" {
		if err := strict(&review, uid); err != nil {
			return nil, err
		}
	} else if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	a := &answer{allowed: r.Allowed, result: r.Result, patch: r.Patch, annotations: r.AuditAnnotations, warnings: r.Warnings}
	if len(a.patch) > 0 && r.PatchType != nil && *r.PatchType != admissionv1.PatchTypeJSONPatch {
		return nil, fmt.Errorf("invalid patch type %q: only %s is known", *r.PatchType, admissionv1.PatchTypeJSONPatch)
	}
	return a, nil
}

// strict are the rules of v1.
func strict(review *admissionv1.AdmissionReview, uid string) error {
	want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if got := review.GroupVersionKind(); got != want {
		return fmt.Errorf("expected webhook response of %s, got %s", want.String(), got.String())
	}
	r := review.Response
	switch {
	case r == nil:
		return errors.New("expected webhook response to have a response stanza")
	case string(r.UID) != uid:
		return fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case len(r.Patch) > 0 && r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) > 0 && *r.PatchType != admissionv1.PatchTypeJSONPatch:
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	case len(r.Patch) == 0 && r.PatchType != nil:
		return fmt.Errorf("webhook returned response.patchType but not response.patch")
	}
	return nil
}

// refusal is the Status that the client gets when the webhook does not allow the write.
func (h *hook) refusal(result *metav1.Status) error {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	status.Code = max(status.Code, http.StatusBadRequest)
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
func (h *hook) report(a *answer, s *shown) {
	for _, w := range a.warnings {
		s.Warn(w)
	}
	if noted := size(a.annotations); len(a.annotations) > maxAnnotations || noted > maxAnnotationBytes {
		slog.Warn("an admission webhook has more to say to the audit log than it may: that is left out", "webhook", h.name, "annotations", len(a.annotations), "bytes", noted)
		return
	}
	for key, value := range a.annotations {
		s.Annotate(h.name+"/"+key, value)
	}
}

// Upstream has no limits for what an answer adds to a request's record.
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

// patched applies a webhook's JSON patch to the object that it was shown.
func patched(e *encoded, patch []byte) (runtime.Object, error) {
	operations, err := api.DecodeJSONPatch(patch)
	if err != nil {
		return nil, err
	}
	if len(operations) == 0 {
		return nil, nil
	}
	if e.Object == nil {
		return nil, fmt.Errorf("admission webhook attempted to modify the object, which is not supported for this operation: %s", e.Operation)
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

// decodeLike reads a document as the kind of the object shown. Unknown fields are dropped.
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
	if got := out.GetObjectKind().GroupVersionKind(); got != e.Form.Kind {
		return nil, fmt.Errorf("the patched object is a %s, not a %s", got, e.Form.Kind)
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out, nil
}
