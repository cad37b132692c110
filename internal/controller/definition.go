package controller

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
)

// contentAnnotation of a definition is a hash of its content in the version that wrote it.
const contentAnnotation = "architecture.knarr.io/content"

// EnsureDefinition creates a definition that is missing, or updates that of another version.
func EnsureDefinition(ctx context.Context, c client.Interface, d architecture.Definition) error {
	for {
		have, err := client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, c, "", d.Name)
		if err == nil && have.Annotations[contentAnnotation] == d.Content || err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		want, failed := d.Read()
		if failed != nil {
			return failed
		}
		if err != nil {
			want.Annotations = map[string]string{contentAnnotation: d.Content}
			_, err = client.Create(ctx, c, want)
		} else {
			have = have.DeepCopy()
			metav1.SetMetaDataAnnotation(&have.ObjectMeta, contentAnnotation, d.Content)
			have.Spec = want.Spec
			_, err = client.Update(ctx, c, have)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}
