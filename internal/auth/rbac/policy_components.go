package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// NodeRules returns the rights of a node's agent. The node authorizer restricts secrets,
// configmaps, volumes and tokens to those of the node's pods. NodeRestriction restricts writes to
// the node's own objects.
func NodeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
		rule(read, core, "services"),
		rule("create get list watch", core, "nodes"),
		rule("patch update", core, "nodes/status"),
		rule("patch update", core, "nodes"),
		rule("create patch update", events, "events"),
		rule(read, core, "pods"),
		rule("create delete", core, "pods"),
		rule("patch update", core, "pods/status"),
		rule("create", core, "pods/eviction"),
		rule(read, core, "configmaps secrets"),
		rule("get", core, "persistentvolumeclaims persistentvolumes"),
		rule("get patch update", core, "persistentvolumeclaims/status"),
		rule("get", core, "endpoints"),
		rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
		rule("create delete get patch update", "coordination.k8s.io", "leases"),
		rule("get", "storage.k8s.io", "volumeattachments"),
		rule("create", core, "serviceaccounts/token"),
		rule("get", core, "serviceaccounts"),
		rule(read, "storage.k8s.io", "csidrivers"),
		rule("create delete get patch update", "storage.k8s.io", "csinodes"),
		rule(read, "node.k8s.io", "runtimeclasses"),
		rule("get", "resource.k8s.io", "resourceclaims"),
		rule("deletecollection", "resource.k8s.io", "resourceslices"),
	}
}

// addComponentRoles adds the roles of all components except the controllers.
func (p *Policy) addComponentRoles() {
	p.clusterRole("system:node", NodeRules()...)
	// There are no subjects, since the node authorizer authorizes nodes. The binding is for
	// clusters that want it.
	p.bindCluster("system:node")
	p.addNodeHelpers()

	p.clusterRole("system:auth-delegator",
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "subjectaccessreviews"),
	)
	p.clusterRole("system:kube-aggregator", rule(read, core, "endpoints services"))
	p.clusterRole("system:heapster", rule(read, core, "events namespaces nodes pods"), rule(read, "extensions", "deployments"))
	p.clusterRole("system:kube-dns", rule("list watch", core, "endpoints services"))
	p.bindCluster("system:kube-dns", account("kube-dns"))
	p.clusterRole("system:persistent-volume-provisioner",
		rule("create delete get list watch", core, "persistentvolumes"),
		rule("get list update watch", core, "persistentvolumeclaims"),
		rule(read, "storage.k8s.io", "storageclasses"),
		rule("watch", core, "events"),
		rule("create patch update", events, "events"),
	)

	p.clusterRole("system:kube-controller-manager",
		rule("create patch update", events, "events"),
		rule("create", "coordination.k8s.io", "leases"),
		rule("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
		rule("create", core, "secrets serviceaccounts"),
		rule("delete", core, "secrets"),
		rule("get", core, "configmaps namespaces secrets serviceaccounts"),
		rule("update", core, "secrets serviceaccounts"),
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "subjectaccessreviews"),
		rule("list watch", "*", "*"),
		rule("create", core, "serviceaccounts/token"),
	)
	p.bindCluster("system:kube-controller-manager", user(auth.UserControllers))

	p.clusterRole("system:kube-scheduler",
		rule("create patch update", events, "events"),
		rule("create", "coordination.k8s.io", "leases"),
		rule("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
		rule(readWrite, "coordination.k8s.io", "leasecandidates"),
		rule(read, core, "namespaces nodes"),
		rule("delete get list watch", core, "pods"),
		rule("create", core, "bindings pods/binding"),
		rule("patch update", core, "pods/status"),
		rule(read, core, "replicationcontrollers services"),
		rule(read, apps, "replicasets"),
		rule(read, "apps", "statefulsets"),
		rule(read, "policy", "poddisruptionbudgets"),
		rule(read, core, "persistentvolumeclaims persistentvolumes"),
		rule("create", "authentication.k8s.io", "tokenreviews"),
		rule("create", "authorization.k8s.io", "subjectaccessreviews"),
		rule(read, "storage.k8s.io", "csinodes csidrivers csistoragecapacities volumeattachments"),
		rule(read, "resource.k8s.io", "deviceclasses resourceclaims resourceclaims/status resourceslices"),
		rule("create delete patch update", "resource.k8s.io", "resourceclaims"),
		rule("patch update", "resource.k8s.io", "resourceclaims/binding resourceclaims/status"),
		rule("update", core, "pods/finalizers"),
	)
	p.bindCluster("system:kube-scheduler", user(auth.UserScheduler))
	p.clusterRole("system:volume-scheduler",
		rule("get list patch update watch", core, "persistentvolumes"),
		rule(read, "storage.k8s.io", "storageclasses"),
		rule("get list patch update watch", core, "persistentvolumeclaims"),
	)
	p.bindCluster("system:volume-scheduler", user(auth.UserScheduler))
	// Upstream's scheduler has no plugins that are loaded at run time.
	p.clusterRole("system:knarr:scheduler-plugins",
		rule(read, "scheduling.knarr.io", "schedulerplugins"),
		rule("patch update", "scheduling.knarr.io", "schedulerplugins/status"),
	)
	p.bindCluster("system:knarr:scheduler-plugins", user(auth.UserScheduler))
}

// addNodeHelpers adds the roles of programs that run beside a node's agent, or talk to it.
func (p *Policy) addNodeHelpers() {
	p.clusterRole("system:node-problem-detector",
		rule("get", core, "nodes"), rule("patch", core, "nodes/status"), rule("create patch update", events, "events"))
	p.clusterRole("system:node-proxier",
		rule("list watch", core, "endpoints services"),
		rule(read, core, "nodes"),
		rule("create patch update", events, "events"),
		rule("list watch", "discovery.k8s.io", "endpointslices"),
		rule("list watch", "networking.k8s.io", "servicecidrs"),
	)
	p.bindCluster("system:node-proxier", user(auth.UserProxy))
	p.clusterRole("system:kubelet-api-admin",
		rule(read, core, "nodes"),
		rule("proxy", core, "nodes"),
		rule("*", core, "nodes/log nodes/metrics nodes/proxy nodes/stats nodes/configz nodes/healthz nodes/pods"),
	)
	p.clusterRole("system:node-bootstrapper", rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"))
}

// addWorkloads adds the rules for Workloads and PodGroups to the other roles.
func (p *Policy) addWorkloads() {
	const scheduling = "scheduling.k8s.io"
	for _, role := range p.ClusterRoles {
		switch role.Name {
		case "system:aggregate-to-view":
			role.Rules = append(role.Rules, rule(read, scheduling, "podgroups podgroups/status workloads"))
		case "system:aggregate-to-edit":
			role.Rules = append(role.Rules, rule(write, scheduling, "podgroups workloads"))
		case "system:kube-scheduler":
			role.Rules = append(role.Rules, rule(read, scheduling, "podgroups"), rule("patch update", scheduling, "podgroups/status"))
		}
	}
	p.controllerRole(controllerRole{account: "podgroup-protection-controller", noEvents: true, rules: []rbacv1.PolicyRule{
		rule("get list update watch", scheduling, "podgroups"),
		rule(read, core, "pods"),
	}})
}

// addControllerRoles adds a role and a binding for each controller's service account in
// kube-system.
func (p *Policy) addControllerRoles() {
	for _, c := range controllerRules() {
		p.controllerRole(c)
	}
}

func (p *Policy) controllerRole(c controllerRole) {
	name := "system:controller:" + c.account
	rules := c.rules
	if !c.noEvents {
		rules = append(rules, rule("create patch update", events, "events"))
	}
	p.clusterRole(name, rules...)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta("", name),
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: c.account}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	})
}
