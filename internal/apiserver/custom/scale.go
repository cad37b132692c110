package custom

import (
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// pathParts splits a simple JSON path: ".spec.replicas" is spec, replicas.
func pathParts(path string) []string {
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}

// Scale returns the object's scale subresource. found is false if the object has no desired
// replicas.
func (v *Version) Scale(u *unstructured.Unstructured) (s *autoscalingv1.Scale, found bool, err error) {
	scale := v.spec.Subresources.Scale
	wanted, found, err := replicas(u, scale.SpecReplicasPath)
	if err != nil {
		return nil, false, err
	}
	actual, _, err := replicas(u, scale.StatusReplicasPath)
	if err != nil {
		return nil, false, err
	}
	selector := ""
	if path := scale.LabelSelectorPath; path != nil && *path != "" {
		if selector, _, err = unstructured.NestedString(u.Object, pathParts(*path)...); err != nil {
			return nil, false, err
		}
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			CreationTimestamp: u.GetCreationTimestamp()},
		Spec:   autoscalingv1.ScaleSpec{Replicas: wanted},
		Status: autoscalingv1.ScaleStatus{Replicas: actual, Selector: selector},
	}, found, nil
}

func replicas(u *unstructured.Unstructured, path string) (int32, bool, error) {
	n, found, err := unstructured.NestedInt64(u.Object, pathParts(path)...)
	return int32(n), found, err
}

// SetReplicas sets the object's desired replicas.
func (v *Version) SetReplicas(u *unstructured.Unstructured, n int32) error {
	return unstructured.SetNestedField(u.Object, int64(n), pathParts(v.spec.Subresources.Scale.SpecReplicasPath)...)
}

// ErrNoReplicas is the error for a Scale of an object without desired replicas.
func (v *Version) ErrNoReplicas() error {
	return fmt.Errorf("the spec replicas field %q does not exist", v.spec.Subresources.Scale.SpecReplicasPath)
}

// ReplicasPaths returns the path of the replicas in each version, for field owners.
func (d *Definition) ReplicasPaths() managedfields.ResourcePathMappings {
	paths := managedfields.ResourcePathMappings{}
	for _, v := range d.versions {
		if v.spec.Subresources == nil || v.spec.Subresources.Scale == nil {
			continue
		}
		var parts []any
		for _, part := range pathParts(v.spec.Subresources.Scale.SpecReplicasPath) {
			parts = append(parts, part)
		}
		if path, err := fieldpath.MakePath(parts...); err == nil {
			paths[v.GVK().GroupVersion().String()] = path
		}
	}
	return paths
}
