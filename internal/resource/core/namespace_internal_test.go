package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamespacesHaveTheirNameAsLabel(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelMetadataName: "other"}}}
	s := NamespaceStrategy()
	s.Default(ns)
	s.PrepareCreate(ns)
	if ns.Labels[corev1.LabelMetadataName] != "n" || len(ns.Spec.Finalizers) != 1 || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("%+v", ns)
	}
}
