package admission

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/auth"
)

// permissionList is a user's permissions, as "GROUP RESOURCE/SUBRESOURCE NAMESPACE".
type permissionList []string

func (m permissionList) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	for _, allowed := range m {
		if allowed == fmt.Sprintf("%s %s/%s %s", a.Group, a.Resource, a.Subresource, a.Namespace) {
			return auth.Allow, "", nil
		}
	}
	return auth.NoOpinion, "", nil
}

// servedKinds serves pods, nodes and a custom kind, each in v1.
type servedKinds struct{ Served }

func (servedKinds) ByKind(kind schema.GroupVersionKind) (res schema.GroupVersionResource, namespaced, ok bool) {
	resource := map[string]string{"Pod": "pods", "Node": "nodes", "Widget": "widgets"}[kind.Kind]
	return kind.GroupVersion().WithResource(resource), kind.Kind != "Node", resource != "" && kind.Version == "v1"
}

// The wanted texts are upstream's.
func TestOwnerReferencesNeedPermissions(t *testing.T) {
	const cannot = `configmaps "c" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>`
	unknown := func(version, kind string) string {
		return fmt.Sprintf(`configmaps "c" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: no matches for kind %q in version %q`, version, kind, kind, version)
	}
	cases := []struct {
		name          string
		version, kind string
		blocks        bool
		permissions   permissionList
		want          string
	}{
		{"an owner without blockOwnerDeletion", "x.example/v1", "Y", false, nil, ""},
		{"a pod without the permission", "v1", "Pod", true, nil, cannot},
		{"a pod with the permission", "v1", "Pod", true, permissionList{" pods/finalizers ns"}, ""},
		{"a node with a permission in the namespace", "v1", "Node", true, permissionList{" nodes/finalizers ns"}, cannot},
		{"a node with a cluster-wide permission", "v1", "Node", true, permissionList{" nodes/finalizers "}, ""},
		{"a custom resource", "d.example/v1", "Widget", true, permissionList{"d.example widgets/finalizers ns"}, ""},
		{"an unserved version", "d.example/v0", "Widget", true, permissionList{"d.example widgets/finalizers ns"}, unknown("d.example/v0", "Widget")},
		{"an unserved kind", "x.example/v1", "Y", true, nil, unknown("x.example/v1", "Y")},
		{"an unserved kind, with the permission for its group", "x.example/v1", "Y", true, permissionList{"x.example */finalizers ns", "x.example */finalizers "}, unknown("x.example/v1", "Y")},
		{"an unserved kind, with the permission for everything", "x.example/v1", "Y", true, permissionList{"* */finalizers "}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", OwnerReferences: []metav1.OwnerReference{{APIVersion: c.version, Kind: c.kind, Name: "o", UID: "u", BlockOwnerDeletion: &c.blocks}}}}
			a := attributesOf(obj)
			a.Resource = corev1.SchemeGroupVersion.WithResource("configmaps")
			err := newOwnerReferences(c.permissions, servedKinds{}).(Validator).Validate(t.Context(), a)
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}
