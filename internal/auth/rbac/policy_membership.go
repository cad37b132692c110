package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// nodeRole names the roles of nodes that are knarr's own, and their bindings to the group of nodes. Those bindings give their rights to nobody
// but nodes: a member of the group who is no node has none in upstream, where the node authorizer looks at the name as well.
const nodeRole = "knarr:node"

// isForNodes says whether a binding is one of nodeRole's. Who wants to give the group these rights, name or no name, makes another one.
func isForNodes(namespace, name, subject string) bool {
	return name == nodeRole && (namespace == "" || namespace == metav1.NamespaceSystem) && subject == groupKey(auth.GroupNodes)
}

// addMembership adds what lets machines join and lets a node's own network, proxy and DNS work; it is knarr's, besides
// upstream's policy. Machines with a token may ask for a node's certificate, which is approved by itself (kubeadm binds the
// same roles alike); nodes renew theirs, route to one another, and keep the Service kube-dns with their part of its endpoints.
// Services and events are not among these rules: NodeRules has them.
func (p *Policy) addMembership() {
	p.clusterRole(nodeRole,
		rule(read, core, "nodes namespaces pods endpoints"),
		rule(read, "discovery.k8s.io", "endpointslices"),
		rule(read, "networking.k8s.io", "servicecidrs networkpolicies"),
		rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeserver"),
	)
	p.role(metav1.NamespaceSystem, nodeRole, []rbacv1.Subject{group(auth.GroupNodes)},
		rule("create", core, "services"),
		rule("create update patch delete", "discovery.k8s.io", "endpointslices"),
	)
	p.clusterRole("knarr:serving-approver",
		rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
		rule("get", core, "nodes"),
	)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta("", "knarr:serving-approver"),
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "certificate-controller"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "knarr:serving-approver"},
	})
	const joining = "system:bootstrappers:kubeadm:default-node-token"
	for _, b := range []struct{ name, role, group string }{
		{nodeRole, nodeRole, auth.GroupNodes},
		{"knarr:node-bootstrapper", "system:node-bootstrapper", joining},
		{"knarr:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", joining},
		{"knarr:node-autoapprove-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", auth.GroupNodes},
	} {
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: bootstrapMeta("", b.name),
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: b.group}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
		})
	}
}

// addMetrics lets whoever may view a namespace ask what its pods use, and whoever may view the cluster what nodes do, too; metrics-server brings
// such a role with it.
func (p *Policy) addMetrics() {
	p.clusterRole("knarr:metrics-reader", rule("get list", "metrics.k8s.io", "nodes pods")).Labels[aggregateTo+"view"] = "true"
}
