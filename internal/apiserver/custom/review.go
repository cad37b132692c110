package custom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/api"
)

// reviewCodec decodes answers in JSON or YAML, of any media type.
var reviewCodec = func() runtime.Codec {
	s := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(apiextensionsv1beta1.AddToScheme(s))
	metav1.AddToGroupVersion(s, metav1.Unversioned)
	return serializer.NewCodecFactory(s).LegacyCodec(apiextensionsv1.SchemeGroupVersion, apiextensionsv1beta1.SchemeGroupVersion)
}()

// conversionRequest makes a ConversionReview in the first version that the webhook supports and
// knarr does too.
func conversionRequest(versions []string, u *unstructured.Unstructured, to schema.GroupVersion) (body []byte, version string, uid types.UID, err error) {
	raw, err := json.Marshal(withoutRevision(u.Object))
	if err != nil {
		return nil, "", "", err
	}
	uid = types.UID(uuid.NewString())
	objects := []runtime.RawExtension{{Raw: raw}}
	for _, version := range versions {
		var review any
		switch version {
		case "v1":
			review = &apiextensionsv1.ConversionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
				Request:  &apiextensionsv1.ConversionRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: objects},
				Response: &apiextensionsv1.ConversionResponse{},
			}
		case "v1beta1":
			review = &apiextensionsv1beta1.ConversionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1beta1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
				Request:  &apiextensionsv1beta1.ConversionRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: objects},
				Response: &apiextensionsv1beta1.ConversionResponse{},
			}
		default:
			continue
		}
		body, err := json.Marshal(review)
		return body, version, uid, err
	}
	return nil, "", "", fmt.Errorf("no supported ConversionReview versions")
}

// withoutRevision removes the resourceVersion. Webhooks do not get it.
func withoutRevision(object map[string]any) map[string]any {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok || metadata["resourceVersion"] == nil {
		return object
	}
	object, metadata = maps.Clone(object), maps.Clone(metadata)
	delete(metadata, "resourceVersion")
	object["metadata"] = metadata
	return object
}

// In an answer of more than maxUncounted bytes, the objects are counted before it is decoded: an
// empty object takes three bytes there, and thirty times as much in memory.
const (
	maxUncounted = 64 << 10
	maxObjects   = 100 // where one object is requested
)

// countedObjects counts the objects of a list and keeps none.
type countedObjects struct{}

var errManyObjects = fmt.Errorf("more than %d objects, expected 1", maxObjects)

// UnmarshalJSON counts up to the limit. It ignores other errors.
func (countedObjects) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return nil
	}
	for n := 0; d.More(); n++ {
		var object json.RawMessage
		if n == maxObjects {
			return errManyObjects
		}
		if err := d.Decode(&object); err != nil {
			return nil
		}
	}
	return nil
}

// fewObjects checks a large answer before it is decoded.
func fewObjects(data []byte) error {
	if len(data) <= maxUncounted {
		return nil
	}
	var answer struct {
		Response struct {
			ConvertedObjects countedObjects `json:"convertedObjects"`
		} `json:"response"`
	}
	if err := json.Unmarshal(data, &answer); errors.Is(err, errManyObjects) {
		return err
	}
	return nil // the decoder reports other errors, and reads YAML
}

// conversionResponse returns the converted objects of a webhook's answer.
func conversionResponse(data []byte, version string, uid types.UID) ([]runtime.RawExtension, error) {
	if err := fewObjects(data); err != nil {
		return nil, err
	}
	if version == "v1beta1" {
		old := &apiextensionsv1beta1.ConversionReview{}
		if err := runtime.DecodeInto(reviewCodec, data, old); err != nil {
			return nil, err
		}
		if old.Response == nil {
			return nil, errors.New("no response provided")
		}
		return old.Response.ConvertedObjects, succeeded(&old.Response.Result)
	}
	review := &apiextensionsv1.ConversionReview{}
	if err := runtime.DecodeInto(reviewCodec, data, review); err != nil {
		return nil, err
	}
	want := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview")
	switch got := review.GroupVersionKind(); {
	case got != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, got)
	case review.Response == nil:
		return nil, errors.New("no response provided")
	case review.Response.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, review.Response.UID)
	}
	return review.Response.ConvertedObjects, succeeded(&review.Response.Result)
}

func succeeded(result *metav1.Status) error {
	switch {
	case result.Status == metav1.StatusSuccess:
		return nil
	case result.Message != "":
		return errors.New(result.Message)
	}
	return fmt.Errorf("response.result.status was '%s', not 'Success'", result.Status)
}

// maxConverted is the maximum size of an object in bytes: a request cannot have a larger one.
const maxConverted = 3 << 20

// readConverted decodes a converted object.
func readConverted(raw []byte) (*unstructured.Unstructured, error) {
	if len(raw) > maxConverted {
		return nil, fmt.Errorf("the converted object has %d bytes, at most %d are allowed", len(raw), maxConverted)
	}
	out := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &out.Object); err != nil {
		return nil, err
	}
	switch {
	case out.Object == nil:
		return nil, errors.New("the converted object is null")
	case out.GetKind() == "":
		return nil, runtime.NewMissingKindErr(string(raw))
	}
	return out, nil
}

// checkConverted checks that a webhook changed only what it may. It restores the metadata, except
// labels and annotations. The errors are in upstream's words.
func checkConverted(before, out *unstructured.Unstructured, to schema.GroupVersion) error {
	if got := out.GetAPIVersion(); got != to.String() {
		return fmt.Errorf("object at index 0: invalid groupVersion (expected %v, received %v)", to, got)
	}
	if got := out.GetKind(); got != before.GetKind() {
		return fmt.Errorf("object at index 0: invalid kind (expected %v, received %v)", before.GetKind(), got)
	}
	if want, got := before.GetName(), out.GetName(); want != got {
		return fmt.Errorf("object: must have the same name: %v != %v", want, got)
	}
	if want, got := before.GetNamespace(), out.GetNamespace(); want != got {
		return fmt.Errorf("object: must have the same namespace: %v != %v", want, got)
	}
	if want, got := before.GetUID(), out.GetUID(); want != got {
		return fmt.Errorf("object: must have the same UID: %v != %v", want, got)
	}
	if err := restoreMetadata(before, out); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

func restoreMetadata(before, out *unstructured.Unstructured) error {
	meta, ok := before.Object["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	changed, ok := out.Object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("invalid metadata of type %T in converted object", out.Object["metadata"])
	}
	path := field.NewPath("metadata")
	labels, err := stringsOf(changed, "labels")
	if err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(labels, before.GetLabels()) {
		if errs := metav1validation.ValidateLabels(labels, path.Child("labels")); len(errs) > 0 {
			return api.Together(errs)
		}
	}
	annotations, err := stringsOf(changed, "annotations")
	if err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(annotations, before.GetAnnotations()) {
		if errs := validation.ValidateAnnotations(annotations, path.Child("annotation")); len(errs) > 0 {
			return api.Together(errs)
		}
	}
	out.Object["metadata"] = runtime.DeepCopyJSON(meta)
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return nil
}

// stringsOf returns a map of strings in an object's metadata; nil if there is none.
func stringsOf(metadata map[string]any, name string) (map[string]string, error) {
	if metadata[name] == nil {
		return nil, nil
	}
	values, ok := metadata[name].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("metadata.%s must be an object, but is %T in converted object", name, metadata[name])
	}
	out := make(map[string]string, len(values))
	for key, value := range values {
		if out[key], ok = value.(string); !ok {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, value)
		}
	}
	return out, nil
}
