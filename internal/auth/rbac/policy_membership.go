package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// Names of knarr's bindings to the group of nodes. They give rights to nodes only. A user in the
// group who is not a node gets none, as upstream, where the node authorizer checks the name too.
const (
	servingRole     = "knarr:node-autoapprove-serving"
	clusterInfoRole = "knarr:cluster-info"
	upgradeRole     = "knarr:node-upgrade"
	// RetiredNodeRole let nodes read all pods. New clusters do not have it. In older ones a
	// controller removes it once no node needs it.
	RetiredNodeRole = "knarr:node"
)

// partsRole is the name of the roles of a node's parts beside the kubelet.
const partsRole = "knarr:node-parts"

// clusterInfo is the ConfigMap with the cluster's ranges (package clusterinfo).
const clusterInfo = "knarr-cluster"

// isForNodes reports whether a binding is one of those for nodes. An administrator who wants to
// give these rights to the whole group makes another binding.
func isForNodes(namespace, name, subject string) bool {
	ours := name == servingRole || name == clusterInfoRole || name == upgradeRole || name == RetiredNodeRole
	return ours && (namespace == "" || namespace == metav1.NamespaceSystem) && subject == groupKey(auth.GroupNodes)
}

// addMembership adds knarr's own rules, which let machines join and let a node's network, proxy and
// DNS work. Machines with a token may request a node's certificate, which is approved automatically
// (kubeadm binds the same roles). Nodes renew theirs, and read the cluster's ranges, as kubeadm's
// nodes read the ConfigMap kubelet-config. All other rights of nodes are upstream's (NodeRules).
//
// The parts of a node beside the kubelet have a service account (auth.NodeAccount) with the rights
// that kube-proxy, CoreDNS and agents of CNI plugins have: addresses of Services, endpoints and
// nodes, network policies, the addresses of their peers, and labels of namespaces. They read no
// pods. They maintain the node's part of the endpoints of Service kube-dns.
func (p *Policy) addMembership() {
	p.clusterRole(servingRole, rule("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeserver"))
	p.role(metav1.NamespaceSystem, clusterInfoRole, []rbacv1.Subject{group(auth.GroupNodes)}, rule("get", core, "configmaps", clusterInfo))
	parts := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: auth.NodeAccount}
	p.clusterRole(partsRole,
		rule(read, core, "namespaces nodes services"),
		rule(read, "discovery.k8s.io", "endpointslices"),
		rule(read, "networking.k8s.io", "networkpolicies"),
		rule(read, "knarr.dev", "policypeers"),
		rule("create patch update", events, "events"),
	)
	p.bindCluster(partsRole, parts)
	p.role(metav1.NamespaceSystem, partsRole, []rbacv1.Subject{parts},
		rule("create", core, "services"),
		rule("create update patch delete", "discovery.k8s.io", "endpointslices"),
	)
	p.clusterRole("knarr:serving-approver",
		rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"),
		rule("get list", core, "nodes"),
		rule("list", "networking.k8s.io", "servicecidrs"),
	)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta("", "knarr:serving-approver"),
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "certificate-controller"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "knarr:serving-approver"},
	})
	// Nodes tell their version, and fetch the program that an administrator has chosen.
	p.clusterRole(upgradeRole, paths("post", "/knarr/v1/upgrade/node"), paths("get", "/knarr/v1/upgrade/node/watch /knarr/v1/upgrade/program"))
	// A machine with a server's token may fetch the cluster's keys, nothing else.
	p.clusterRole("knarr:server-bootstrapper", paths("post", "/knarr/v1/servers"))
	const joining = "system:bootstrappers:kubeadm:default-node-token"
	for _, b := range []struct{ name, role, group string }{
		{servingRole, servingRole, auth.GroupNodes},
		{upgradeRole, upgradeRole, auth.GroupNodes},
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

// addPage lets all users open the page in the browser. It gives them no other rights: the page acts
// with their own.
func (p *Policy) addPage() {
	p.clusterRole("knarr:page", paths("post", "/knarr/v1/ui/links"), paths("post delete", "/knarr/v1/ui/session"))
	p.bindCluster("knarr:page", group(auth.GroupAuthenticated))
}

// addInsight lets all users ask the cluster to explain itself. Answers have only what the user may
// read.
func (p *Policy) addInsight() {
	p.clusterRole("knarr:insight", paths("get", "/insight/v1/*"))
	p.bindCluster("knarr:insight", group(auth.GroupAuthenticated))
}

// addMetrics lets viewers of a namespace read the usage of its pods, and viewers of the cluster the
// usage of nodes. metrics-server brings such a role with it.
func (p *Policy) addMetrics() {
	p.clusterRole("knarr:metrics-reader", rule("get list", "metrics.k8s.io", "nodes pods")).Labels[aggregateTo+"view"] = "true"
}

// addArchitecture lets viewers read the kinds of architecture, and editors declare components and
// systems. Nodes and the controllers alone write Traffic and the status of each kind.
func (p *Policy) addArchitecture() {
	const group = "architecture.knarr.io"
	view := p.clusterRole("knarr:architecture-viewer", rule(read, group, "components components/status systems systems/status traffics"))
	view.Labels[aggregateTo+"view"] = "true"
	edit := p.clusterRole("knarr:architecture-editor", rule(write, group, "components systems"))
	edit.Labels[aggregateTo+"edit"] = "true"
}
