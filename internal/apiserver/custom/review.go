package custom

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// conversionRequest is a ConversionReview in the first of the versions that the webhook understands and we do.
func conversionRequest(versions []string, u *unstructured.Unstructured, to schema.GroupVersion) ([]byte, types.UID, error) {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, "", err
	}
	uid := types.UID(uuid.NewString())
	objects := []runtime.RawExtension{{Raw: raw}}
	for _, version := range versions {
		var review any
		switch version {
		case "v1":
			review = &apiextensionsv1.ConversionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
				Request:  &apiextensionsv1.ConversionRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: objects},
			}
		case "v1beta1":
			review = &apiextensionsv1beta1.ConversionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1beta1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
				Request:  &apiextensionsv1beta1.ConversionRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: objects},
			}
		default:
			continue
		}
		body, err := json.Marshal(review)
		return body, uid, err
	}
	return nil, "", fmt.Errorf("no supported ConversionReview versions")
}

// conversionResponse is the one converted object of a webhook's answer. The two versions of the review have the same fields.
func conversionResponse(data []byte, uid types.UID) (*unstructured.Unstructured, error) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(data, review); err != nil {
		return nil, err
	}
	gvk := schema.FromAPIVersionAndKind(review.APIVersion, review.Kind)
	switch {
	case gvk.Group != apiextensionsv1.GroupName || gvk.Kind != "ConversionReview" || gvk.Version != "v1" && gvk.Version != "v1beta1":
		return nil, fmt.Errorf("expected webhook response of %v, got %v", apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview"), gvk)
	case review.Response == nil:
		return nil, errors.New("no response provided")
	case gvk.Version == "v1" && review.Response.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, review.Response.UID)
	case review.Response.Result.Status != metav1.StatusSuccess:
		return nil, errors.New(review.Response.Result.Message)
	case len(review.Response.ConvertedObjects) != 1:
		return nil, fmt.Errorf("expected 1 converted objects, got %d", len(review.Response.ConvertedObjects))
	}
	out := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(review.Response.ConvertedObjects[0].Raw, &out.Object); err != nil {
		return nil, err
	}
	if out.Object == nil {
		return nil, errors.New("the converted object is null")
	}
	return out, nil
}

// checkConverted holds a webhook to what it may change, and puts back the metadata that it may not: only labels and annotations are its own.
func checkConverted(before, out *unstructured.Unstructured, to schema.GroupVersion) error {
	if got := out.GetAPIVersion(); got != to.String() {
		return fmt.Errorf("invalid groupVersion (expected %v, received %v)", to, got)
	}
	if got := out.GetKind(); got != before.GetKind() {
		return fmt.Errorf("invalid kind (expected %v, received %v)", before.GetKind(), got)
	}
	if out.GetName() != before.GetName() || out.GetNamespace() != before.GetNamespace() || out.GetUID() != before.GetUID() {
		return fmt.Errorf("invalid metadata: name, namespace and uid must stay as they are (expected %s/%s %s, received %s/%s %s)",
			before.GetNamespace(), before.GetName(), before.GetUID(), out.GetNamespace(), out.GetName(), out.GetUID())
	}
	if _, ok := before.Object["metadata"]; ok {
		if _, ok := out.Object["metadata"].(map[string]any); !ok {
			return fmt.Errorf("invalid metadata of type %T in converted object", out.Object["metadata"])
		}
	}
	return restoreMetadata(before, out)
}

func restoreMetadata(before, out *unstructured.Unstructured) error {
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	path := field.NewPath("metadata")
	if !apiequality.Semantic.DeepEqual(labels, before.GetLabels()) {
		if errs := validation.ValidateLabels(labels, path.Child("labels")); len(errs) > 0 {
			return errs.ToAggregate()
		}
	}
	meta, ok := before.Object["metadata"].(map[string]any)
	if !ok {
		return nil
	}
	out.Object["metadata"] = runtime.DeepCopyJSON(meta)
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return nil
}
