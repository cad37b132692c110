package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// nodeRole is the name of knarr's own roles of nodes, and of their bindings to the group of nodes.
// These bindings give rights to nodes only. A user in the group who is not a node gets none, as
// upstream, where the node authorizer checks the name too.
const nodeRole = "knarr:node"

// clusterInfo is the ConfigMap with the cluster's ranges (package clusterinfo).
const clusterInfo = "knarr-cluster"

// isForNodes reports whether a binding is one of nodeRole's. An administrator who wants to give
// these rights to the whole group makes another binding.
func isForNodes(namespace, name, subject string) bool {
	return name == nodeRole && (namespace == "" || namespace == metav1.NamespaceSystem) && subject == groupKey(auth.GroupNodes)
}

// addMembership adds knarr's own rules, which let machines join and let a node's network, proxy and
// DNS work. Machines with a token may request a node's certificate, which is approved automatically
// (kubeadm binds the same roles). Nodes renew theirs, route to each other, maintain their part of
// the endpoints of Service kube-dns, and read the cluster's ranges. They list PersistentVolumes, to
// find those that they make on their disks. Rules for Services and Events are in NodeRules.
func (p *Policy) addMembership() {
	p.clusterRole(nodeRole,
		rule(read, core, "nodes namespaces pods endpoints"),
		rule(read, "discovery.k8s.io", "endpointslices"),
		rule(read, "networking.k8s.io", "servicecidrs networkpolicies"),
		rule(read, "knarr.dev", "policypeers"),
		rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeserver"),
		rule("list watch", core, "persistentvolumes"),
	)
	p.role(metav1.NamespaceSystem, nodeRole, []rbacv1.Subject{group(auth.GroupNodes)},
		rule("create", core, "services"),
		rule("create update patch delete", "discovery.k8s.io", "endpointslices"),
		rule("get", core, "configmaps", clusterInfo),
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
	// A machine with a server's token may fetch the cluster's keys, nothing else.
	p.clusterRole("knarr:server-bootstrapper", paths("post", "/knarr/v1/servers"))
	const joining = "system:bootstrappers:kubeadm:default-node-token"
	for _, b := range []struct{ name, role, group string }{
		{nodeRole, nodeRole, auth.GroupNodes},
		{"knarr:node-bootstrapper", "system:node-bootstrapper", joining},
		{"knarr:server-bootstrapper", "knarr:server-bootstrapper", "system:bootstrappers:knarr:servers"},
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

// addMetrics lets viewers of a namespace read the usage of its pods, and viewers of the cluster the
// usage of nodes. metrics-server brings such a role with it.
func (p *Policy) addMetrics() {
	p.clusterRole("knarr:metrics-reader", rule("get list", "metrics.k8s.io", "nodes pods")).Labels[aggregateTo+"view"] = "true"
}
