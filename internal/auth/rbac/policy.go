package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// API groups and verbs of the tables, grouped as in upstream's documentation.
const (
	core = "core" // the empty group

	read      = "get list watch"
	write     = "create delete deletecollection patch update"
	readWrite = "get list watch create delete deletecollection patch update"

	events = "core events.k8s.io"
	apps   = "apps extensions"
)

const (
	labelBootstrapping   = "kubernetes.io/bootstrapping"
	annotationAutoUpdate = rbacv1.AutoUpdateAnnotationKey
	aggregateTo          = "rbac.authorization.k8s.io/aggregate-to-"
)

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Bootstrap returns upstream's bootstrap policy, plus knarr's rules for nodes (addMembership) and
// metrics (addMetrics). gates are the feature gates that are on besides the defaults.
func Bootstrap(gates ...string) *Policy {
	p := &Policy{}
	p.addUserRoles()
	p.addDiscoveryRoles()
	p.addComponentRoles()
	p.addCertificateRoles()
	p.addControllerRoles()
	p.addNamespacedRoles()
	p.addMembership()
	p.addMetrics()
	p.addPage()
	p.addInsight()
	p.addArchitecture()
	if slices.Contains(gates, "GenericWorkload") {
		p.addWorkloads()
	}
	p.aggregate()
	return p
}

func bootstrapMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{labelBootstrapping: "rbac-defaults"},
		Annotations: map[string]string{annotationAutoUpdate: "true"},
	}
}

func (p *Policy) clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: bootstrapMeta("", name), Rules: rules}
	p.ClusterRoles = append(p.ClusterRoles, role)
	return role
}

// bindCluster adds a ClusterRoleBinding with the name of its role.
func (p *Policy) bindCluster(role string, subjects ...rbacv1.Subject) {
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta("", role), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})
}

// role adds a Role and a binding of the same name.
func (p *Policy) role(namespace, name string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	p.Roles = append(p.Roles, &rbacv1.Role{ObjectMeta: bootstrapMeta(namespace, name), Rules: rules})
	if subjects == nil {
		return
	}
	p.RoleBindings = append(p.RoleBindings, &rbacv1.RoleBinding{
		ObjectMeta: bootstrapMeta(namespace, name), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: name}
}

// aggregate fills the rules of aggregated roles, so that they are complete before the aggregation
// controller runs.
func (p *Policy) aggregate() {
	// view is aggregated into edit, and edit into admin, so the order matters.
	for _, name := range []string{"view", "edit", "admin"} {
		i := slices.IndexFunc(p.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
		into := p.ClusterRoles[i]
		for _, r := range p.ClusterRoles {
			if r.Labels[aggregateTo+name] == "true" {
				into.Rules = append(into.Rules, r.Rules...)
			}
		}
	}
}

// addUserRoles adds the roles for users.
func (p *Policy) addUserRoles() {
	p.clusterRole("cluster-admin", rule("*", "*", "*"), paths("*", "*"))
	p.bindCluster("cluster-admin", group(auth.GroupMasters))

	aggregated := func(name string, labels ...string) {
		role := p.clusterRole(name)
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregateTo + name: "true"}}}}
		for _, l := range labels {
			role.Labels[aggregateTo+l] = "true"
		}
	}
	aggregated("admin")
	aggregated("edit", "admin")
	aggregated("view", "edit")

	admin := p.clusterRole("system:aggregate-to-admin",
		rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
		rule(readWrite, "rbac.authorization.k8s.io", "rolebindings roles"),
	)
	admin.Labels[aggregateTo+"admin"] = "true"

	edit := p.clusterRole("system:aggregate-to-edit",
		rule(read, core, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
		rule("impersonate", core, "serviceaccounts"),
		rule(write, core, "pods pods/attach pods/exec pods/portforward pods/proxy"),
		rule("create", core, "pods/eviction"),
		rule(write, "events.k8s.io", "events"),
		rule(write, core, "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy"),
		rule("create", core, "serviceaccounts/token"),
		rule(write, "apps", "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"),
		rule(write, "autoscaling", "horizontalpodautoscalers"),
		rule(write, "batch", "cronjobs jobs"),
		rule(write, "extensions", "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale"),
		rule(write, "policy", "poddisruptionbudgets"),
		rule(write, "networking.k8s.io", "ingresses networkpolicies"),
		rule(readWrite, "coordination.k8s.io", "leases"),
		rule(write, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
	)
	edit.Labels[aggregateTo+"edit"] = "true"

	view := p.clusterRole("system:aggregate-to-view",
		rule(read, core, "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status"),
		rule(read, core, "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas resourcequotas/status"),
		rule(read, core, "namespaces"),
		rule(read, "events.k8s.io", "events"),
		rule(read, "discovery.k8s.io", "endpointslices"),
		rule(read, "apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"),
		rule(read, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
		rule(read, "batch", "cronjobs cronjobs/status jobs jobs/status"),
		rule(read, "extensions", "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"),
		rule(read, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
		rule(read, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
		rule(read, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
	)
	view.Labels[aggregateTo+"view"] = "true"
}

// addDiscoveryRoles adds the roles for discovery, which everyone may read.
func (p *Policy) addDiscoveryRoles() {
	p.clusterRole("system:discovery", paths("get", "/livez /readyz /healthz /version /version/ /openapi /openapi/* /api /api/* /apis /apis/*"))
	p.bindCluster("system:discovery", group(auth.GroupAuthenticated))
	p.clusterRole("system:basic-user",
		rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
		rule("create", "authentication.k8s.io", "selfsubjectreviews"),
	)
	p.bindCluster("system:basic-user", group(auth.GroupAuthenticated))
	p.clusterRole("system:public-info-viewer", paths("get", "/livez /readyz /healthz /version /version/"))
	p.bindCluster("system:public-info-viewer", group(auth.GroupAuthenticated), group(auth.GroupUnauthenticated))
	p.clusterRole("system:monitoring", paths("get", "/metrics /metrics/slis /livez /readyz /healthz /livez/* /readyz/* /healthz/* /statusz /flagz"), rule("get", core, "nodes/metrics"))
	p.bindCluster("system:monitoring", group("system:monitoring"))
	p.clusterRole("system:service-account-issuer-discovery", paths("get", "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/"))
	p.bindCluster("system:service-account-issuer-discovery", group(auth.GroupServiceAccounts))
}

// addCertificateRoles adds the roles of approvers, and of users who request certificates.
func (p *Policy) addCertificateRoles() {
	const csr = "certificates.k8s.io"
	p.clusterRole("system:certificates.k8s.io:certificatesigningrequests:nodeclient", rule("create", csr, "certificatesigningrequests/nodeclient"))
	p.clusterRole("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", rule("create", csr, "certificatesigningrequests/selfnodeclient"))
	for _, name := range []string{"legacy-unknown", "kubelet-serving", "kube-apiserver-client", "kube-apiserver-client-kubelet"} {
		p.clusterRole("system:certificates.k8s.io:"+name+"-approver", rule("approve", csr, "signers", "kubernetes.io/"+name))
	}
}

// addNamespacedRoles adds the Roles of kube-system and kube-public.
func (p *Policy) addNamespacedRoles() {
	const system, public = metav1.NamespaceSystem, metav1.NamespacePublic
	p.role(system, "extension-apiserver-authentication-reader",
		[]rbacv1.Subject{user(auth.UserControllers), user(auth.UserScheduler)},
		rule(read, core, "configmaps", "extension-apiserver-authentication"))
	// Upstream's binding of the reader has a colon in its name, unlike the role.
	p.RoleBindings[len(p.RoleBindings)-1].Name = "system::extension-apiserver-authentication-reader"
	p.role(system, "system:controller:bootstrap-signer", []rbacv1.Subject{account("bootstrap-signer")}, rule(read, core, "secrets"))
	p.role(system, "system:controller:cloud-provider", []rbacv1.Subject{account("cloud-provider")}, rule("create get list watch", core, "configmaps"))
	p.role(system, "system:controller:token-cleaner", []rbacv1.Subject{account("token-cleaner")},
		rule("delete get list watch", core, "secrets"), rule("create patch update", events, "events"))
	// A SchedulerPlugin may name a ConfigMap with its module.
	p.role(system, "system:knarr:scheduler-plugins", []rbacv1.Subject{user(auth.UserScheduler)}, rule("get", core, "configmaps"))
	locking := func(name string, leaders ...rbacv1.Subject) {
		p.role(system, "system::leader-locking-"+name, leaders, rule("create get list update watch", "coordination.k8s.io", "leases"),
			rule("create get list update watch", "coordination.k8s.io", "leasecandidates"))
	}
	locking("kube-controller-manager", user(auth.UserControllers), account("kube-controller-manager"), account("leader-election-controller"))
	locking("kube-scheduler", user(auth.UserScheduler), account("kube-scheduler"))
	p.role(public, "system:controller:bootstrap-signer", []rbacv1.Subject{account("bootstrap-signer")},
		rule(read, core, "configmaps"), rule("update", core, "configmaps", "cluster-info"), rule("create patch update", events, "events"))
}
