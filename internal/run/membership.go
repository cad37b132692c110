package run

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// membership is what lets machines join: those with a token may ask for a node's certificate, which is approved by
// itself; nodes may renew theirs, and run the service proxy and DNS. Roles are upstream's; kubeadm binds them alike.
var membership = []struct{ name, role, group string }{
	{"knarr:node-bootstrapper", "system:node-bootstrapper", "system:bootstrappers:kubeadm:default-node-token"},
	{"knarr:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers:kubeadm:default-node-token"},
	{"knarr:node-autoapprove-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"},
	{"knarr:node-proxier", "system:node-proxier", "system:nodes"},
	{"knarr:node-dns", "knarr:node-dns", "system:nodes"},
}

// dnsRole: the node's DNS server keeps the Service kube-dns and its own EndpointSlice.
var dnsRole = &rbacv1.ClusterRole{
	ObjectMeta: metav1.ObjectMeta{Name: "knarr:node-dns"},
	Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create", "update", "patch"}},
	},
}

// allowJoining writes the bindings that are missing.
func allowJoining(ctx context.Context, c client.Interface) error {
	if _, err := client.Create(ctx, c, dnsRole.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("cluster role %s: %w", dnsRole.Name, err)
	}
	for _, m := range membership {
		_, err := client.Create(ctx, c, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: m.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: m.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: m.group}},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cluster role binding %s: %w", m.name, err)
		}
	}
	return nil
}
