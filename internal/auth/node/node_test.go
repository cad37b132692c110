package node

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

func TestANodeSeesWhatItsPodsNeedAndNoMore(t *testing.T) {
	pod := func(name, node string, mirror bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: name + "-sa", ImagePullSecrets: []corev1.LocalObjectReference{{Name: name + "-pull"}},
			InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name + "-env"}}}}}},
			Volumes: []corev1.Volume{
				{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name + "-map"}}}}}}},
				{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-claim"}}},
			},
		}}
		if mirror {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}
		return p
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               &corev1.ObjectReference{Namespace: "ns", Name: "mine-claim"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "key"}}},
	}}
	unsaid := pod("unsaid", "n1", true)
	unsaid.Annotations[corev1.MirrorPodAnnotationKey] = ""
	m := clienttest.NewMemory(pod("mine", "n1", false), pod("theirs", "n2", false), pod("static", "n1", true), unsaid, volume,
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va1"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va2"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n2"}})
	z, err := New(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		a     auth.Attributes
		allow bool
	}{
		{auth.Attributes{Verb: "get", Resource: "secrets", Namespace: "ns", Name: "mine-pull"}, true},
		{auth.Attributes{Verb: "watch", Resource: "secrets", Namespace: "ns", FieldSelector: "metadata.name=mine-env"}, true},
		{auth.Attributes{Verb: "get", Resource: "secrets", Namespace: "ns", Name: "theirs-pull"}, false},
		{auth.Attributes{Verb: "get", Resource: "secrets", Namespace: "other", Name: "mine-pull"}, false},
		{auth.Attributes{Verb: "get", Resource: "secrets", Namespace: "ns", Name: "static-pull"}, false},
		{auth.Attributes{Verb: "get", Resource: "secrets", Namespace: "ns", Name: "unsaid-pull"}, false},
		{auth.Attributes{Verb: "list", Resource: "secrets", Namespace: "ns"}, false},
		{auth.Attributes{Verb: "update", Resource: "secrets", Namespace: "ns", Name: "mine-pull"}, false},
		{auth.Attributes{Verb: "get", Resource: "secrets", Namespace: "storage", Name: "key"}, true},
		{auth.Attributes{Verb: "get", Resource: "configmaps", Namespace: "ns", Name: "mine-map"}, true},
		{auth.Attributes{Verb: "get", Resource: "configmaps", Namespace: "ns", Name: "theirs-map"}, false},
		{auth.Attributes{Verb: "get", Resource: "persistentvolumeclaims", Namespace: "ns", Name: "mine-claim"}, true},
		{auth.Attributes{Verb: "get", Resource: "persistentvolumes", Name: "pv"}, true},
		{auth.Attributes{Verb: "get", Group: "storage.k8s.io", Resource: "volumeattachments", Name: "va1"}, true},
		{auth.Attributes{Verb: "get", Group: "storage.k8s.io", Resource: "volumeattachments", Name: "va2"}, false},
		{auth.Attributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "ns", Name: "mine-sa"}, true},
		{auth.Attributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "ns", Name: "theirs-sa"}, false},
		{auth.Attributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system", Name: auth.NodeAccount}, true},
		{auth.Attributes{Verb: "get", Resource: "serviceaccounts", Namespace: "kube-system", Name: auth.NodeAccount}, false},
		{auth.Attributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "ns", Name: auth.NodeAccount}, false},
		{auth.Attributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "kube-system", Name: "other"}, false},
		{auth.Attributes{Verb: "list", Resource: "persistentvolumes", LabelSelector: "local.knarr.dev/node=n1"}, false},
		{auth.Attributes{Verb: "list", Resource: "namespaces"}, false},
		{auth.Attributes{Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices"}, false},
		{auth.Attributes{Verb: "get", Resource: "nodes", Name: "n1"}, true},
		{auth.Attributes{Verb: "get", Resource: "nodes", Name: "n2"}, false},
		{auth.Attributes{Verb: "watch", Resource: "nodes", FieldSelector: "metadata.name=n1"}, true},
		{auth.Attributes{Verb: "list", Resource: "nodes"}, false},
		{auth.Attributes{Verb: "patch", Resource: "nodes", Subresource: "status", Name: "n1"}, true},
		{auth.Attributes{Verb: "delete", Resource: "nodes", Name: "n1"}, false},
		{auth.Attributes{Verb: "get", Resource: "pods", Namespace: "ns", Name: "mine"}, true},
		{auth.Attributes{Verb: "get", Resource: "pods", Namespace: "ns", Name: "theirs"}, false},
		{auth.Attributes{Verb: "watch", Resource: "pods", FieldSelector: "spec.nodeName=n1"}, true},
		{auth.Attributes{Verb: "watch", Resource: "pods"}, false},
		{auth.Attributes{Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "ns", Name: "mine"}, true},
		{auth.Attributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "n1"}, true},
		{auth.Attributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: "n2"}, false},
		{auth.Attributes{Verb: "create", Group: "storage.k8s.io", Resource: "csinodes"}, true},
		{auth.Attributes{Verb: "list", Resource: "services"}, true},
		{auth.Attributes{Verb: "list", Group: "apps", Resource: "deployments"}, false},
	}
	for _, c := range cases {
		c.a.User = auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}}
		d, reason, err := z.Authorize(context.Background(), c.a)
		if err != nil || (d == auth.Allow) != c.allow {
			t.Errorf("%s %s: allowed %v, want %v (%s, %v)", auth.ForbiddenText(c.a), c.a.Name, d == auth.Allow, c.allow, reason, err)
		}
	}
	if d, _, _ := z.Authorize(context.Background(), auth.Attributes{User: auth.User{Name: "system:node:n1"}, Verb: "get", Resource: "nodes", Name: "n1"}); d != auth.NoOpinion {
		t.Error("a user outside of the group system:nodes was taken for a node")
	}
}

// The texts are upstream's for the same requests.
func TestRefusalsOfNodesHaveUpstreamsReasons(t *testing.T) {
	z, err := New(t.Context(), clienttest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	const unrelated = "no relationship found between node 'n1' and this object"
	for _, c := range []struct {
		verb, resource, subresource, namespace, name string
		want                                         string
	}{
		{"list", "secrets", "", "", "", "can only read namespaced object of this type"},
		{"list", "configmaps", "", "ns", "", "No Object name found"},
		{"delete", "secrets", "", "ns", "x", "can only read resources of this type"},
		{"get", "secrets", "", "ns", "x", unrelated},
		{"get", "persistentvolumeclaims", "status", "ns", "x", "can only get/update/patch this type"},
		{"patch", "persistentvolumeclaims", "status", "ns", "x", unrelated},
		{"list", "serviceaccounts", "", "ns", "", "can only create tokens for individual service accounts"},
		{"create", "serviceaccounts", "", "ns", "", "can only create tokens for individual service accounts"},
		{"get", "secrets", "status", "ns", "x", "cannot read subresource"},
		{"update", "configmaps", "status", "ns", "x", "can only read resources of this type"},
		{"create", "serviceaccounts", "status", "ns", "x", "can only create token subresource of serviceaccount"},
		{"create", "serviceaccounts", "token", "ns", "", "can only create tokens for individual service accounts"},
		{"get", "serviceaccounts", "token", "ns", "x", "can only create tokens for individual service accounts"},
		{"get", "serviceaccounts", "", "ns", "", "No Object name found"},
		{"get", "serviceaccounts", "", "ns", "x", unrelated},
		{"get", "pods", "", "ns", "", "No Object name found"},
		{"watch", "pods", "", "ns", "x", unrelated},
		{"list", "pods", "", "ns", "", "can only list/watch pods with spec.nodeName field selector"},
		{"get", "pods", "log", "ns", "x", ""},
		{"list", "coordination.k8s.io/leases", "", "kube-node-lease", "", "can only get, create, update, patch, or delete a node lease"},
		{"get", "coordination.k8s.io/leases", "", "ns", "n1", `can only access leases in the "kube-node-lease" system namespace`},
		{"get", "coordination.k8s.io/leases", "", "kube-node-lease", "n2", "can only access node lease with the same name as the requesting node"},
		{"get", "storage.k8s.io/csinodes", "status", "", "n1", "cannot authorize CSINode subresources"},
		{"list", "storage.k8s.io/csinodes", "", "", "", "can only get, create, update, patch, or delete a CSINode"},
		{"get", "resource.k8s.io/resourceslices", "status", "", "x", "cannot authorize ResourceSlice subresources"},
		{"list", "resource.k8s.io/resourceslices", "", "", "", "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{"get", "persistentvolumes", "status", "", "x", "cannot get subresource"},
		{"list", "persistentvolumes", "", "", "", "can only get individual resources of this type"},
		{"get", "nodes", "status", "", "n1", ""},
		{"get", "nodes", "proxy", "", "n1", ""},
		{"list", "nodes", "", "", "", "node 'n1' cannot read all nodes, only its own Node object"},
		{"patch", "resource.k8s.io/resourceslices", "", "", "", "No Object name found"},
		{"patch", "resource.k8s.io/resourceslices", "", "", "x", unrelated},
	} {
		group, resource, grouped := strings.Cut(c.resource, "/")
		if !grouped {
			group, resource = "", c.resource
		}
		a := auth.Attributes{
			User: auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes}},
			Verb: c.verb, Group: group, Resource: resource, Subresource: c.subresource, Namespace: c.namespace, Name: c.name,
		}
		if d, reason, err := z.Authorize(t.Context(), a); err != nil || d != auth.NoOpinion || reason != c.want {
			t.Errorf("%s: %v %q %v, want %q", auth.ForbiddenText(a), d, reason, err, c.want)
		}
	}
}

func TestAPartOfANodeListsTheVolumesOnItsDisks(t *testing.T) {
	z, err := New(t.Context(), clienttest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	loose := auth.NodePart("n1")
	loose.Extra = nil
	for _, c := range []struct {
		user           auth.User
		verb, resource string
		selector       string
		allow          bool
	}{
		{auth.NodePart("n1"), "list", "persistentvolumes", "local.knarr.dev/node=n1", true},
		{auth.NodePart("n1"), "watch", "persistentvolumes", "a=b,local.knarr.dev/node in (n1)", true},
		{auth.NodePart("n1"), "list", "persistentvolumes", "local.knarr.dev/node=n2", false},
		{auth.NodePart("n1"), "list", "persistentvolumes", "local.knarr.dev/node in (n1,n2)", false},
		{auth.NodePart("n1"), "list", "persistentvolumes", "local.knarr.dev/node!=n1", false},
		{auth.NodePart("n1"), "list", "persistentvolumes", "", false},
		{auth.NodePart("n1"), "list", "persistentvolumes", "((", false},
		{auth.NodePart("n1"), "get", "persistentvolumes", "local.knarr.dev/node=n1", false},
		{auth.NodePart("n1"), "list", "pods", "local.knarr.dev/node=n1", false},
		{loose, "list", "persistentvolumes", "local.knarr.dev/node=n1", false},
		{loose, "list", "persistentvolumes", "local.knarr.dev/node=", false},
		{auth.ServiceAccount("default", auth.NodeAccount), "list", "persistentvolumes", "local.knarr.dev/node=n1", false},
	} {
		a := auth.Attributes{User: c.user, Verb: c.verb, Resource: c.resource, LabelSelector: c.selector}
		if d, reason, err := z.Authorize(t.Context(), a); err != nil || d == auth.Allow != c.allow {
			t.Errorf("%s %s with %q: %v %q %v, want %t", c.verb, c.resource, c.selector, d, reason, err, c.allow)
		}
	}
}

func TestANodesPartsReadAndUpdateTheTrafficOfTheirNode(t *testing.T) {
	z, err := New(t.Context(), clienttest.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		verb, name, selector string
		allow                bool
	}{
		{"get", "n1", "", true},
		{"update", "n1", "", true},
		{"list", "", "metadata.name=n1", true},
		{"watch", "", "metadata.name=n1", true},
		{"get", "n2", "", false},
		{"update", "n2", "", false},
		{"list", "", "", false},
		{"watch", "", "metadata.name=n2", false},
		{"create", "n1", "", false},
		{"delete", "n1", "", false},
		{"patch", "n1", "", false},
	} {
		a := auth.Attributes{User: auth.NodePart("n1"), Verb: c.verb, Group: "architecture.knarr.io", Resource: "traffics", Name: c.name, FieldSelector: c.selector}
		if d, reason, _ := z.Authorize(t.Context(), a); (d == auth.Allow) != c.allow {
			t.Errorf("%s %s %s: %v (%s), want %t", c.verb, c.name, c.selector, d, reason, c.allow)
		}
	}
}
