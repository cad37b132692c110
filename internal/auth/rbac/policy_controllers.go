package rbac

import rbacv1 "k8s.io/api/rbac/v1"

// controllerRole holds the rights of the controller with this service account in kube-system.
type controllerRole struct {
	account  string
	noEvents bool // the controller may not write Events, as most may
	rules    []rbacv1.PolicyRule
}

func controllerRules() []controllerRole {
	return append(append(workloadControllers(), clusterControllers()...), volumeControllers()...)
}

func workloadControllers() []controllerRole {
	return []controllerRole{
		{account: "cronjob-controller", rules: []rbacv1.PolicyRule{
			rule("get list update watch", "batch", "cronjobs"),
			rule("create delete get list patch update watch", "batch", "jobs"),
			rule("update", "batch", "cronjobs/status"),
			rule("update", "batch", "cronjobs/finalizers"),
			rule("delete list watch", core, "pods"),
		}},
		{account: "daemon-set-controller", rules: []rbacv1.PolicyRule{
			rule(read, apps, "daemonsets"),
			rule("update", apps, "daemonsets/status"),
			rule("update", apps, "daemonsets/finalizers"),
			rule("list watch", core, "nodes"),
			rule("create delete list patch watch", core, "pods"),
			rule("create", core, "pods/binding"),
			rule("create delete get list patch update watch", "apps", "controllerrevisions"),
		}},
		{account: "deployment-controller", rules: []rbacv1.PolicyRule{
			rule("get list update watch", apps, "deployments"),
			rule("update", apps, "deployments/status"),
			rule("update", apps, "deployments/finalizers"),
			rule("create delete get list patch update watch", apps, "replicasets"),
			rule("get list update watch", core, "pods"),
		}},
		{account: "disruption-controller", rules: []rbacv1.PolicyRule{
			rule(read, "apps extensions", "deployments"),
			rule(read, "apps extensions", "replicasets"),
			rule(read, core, "replicationcontrollers"),
			rule(read, "policy", "poddisruptionbudgets"),
			rule(read, "apps", "statefulsets"),
			rule("update", "policy", "poddisruptionbudgets/status"),
			rule("patch update", core, "pods/status"),
			rule("get", "*", "*/scale"),
		}},
		{account: "job-controller", rules: []rbacv1.PolicyRule{
			rule("get list patch update watch", "batch", "jobs"),
			rule("update", "batch", "jobs/status"),
			rule("update", "batch", "jobs/finalizers"),
			rule("create delete list patch watch", core, "pods"),
		}},
		{account: "replicaset-controller", rules: []rbacv1.PolicyRule{
			rule("get list update watch", apps, "replicasets"),
			rule("update", apps, "replicasets/status"),
			rule("update", apps, "replicasets/finalizers"),
			rule("create delete list patch watch", core, "pods"),
		}},
		{account: "replication-controller", rules: []rbacv1.PolicyRule{
			rule("get list update watch", core, "replicationcontrollers"),
			rule("update", core, "replicationcontrollers/status"),
			rule("update", core, "replicationcontrollers/finalizers"),
			rule("create delete list patch watch", core, "pods"),
		}},
		{account: "statefulset-controller", rules: []rbacv1.PolicyRule{
			rule("list watch", core, "pods"),
			rule(read, "apps", "statefulsets"),
			rule("update", "apps", "statefulsets/status"),
			rule("update", "apps", "statefulsets/finalizers"),
			rule("create delete get patch update", core, "pods"),
			rule("update", core, "pods/finalizers"),
			rule("create delete get list patch update watch", "apps", "controllerrevisions"),
			rule("create get list watch", core, "persistentvolumeclaims"),
			rule("delete update", core, "persistentvolumeclaims"),
		}},
		{account: "horizontal-pod-autoscaler", rules: []rbacv1.PolicyRule{
			rule(read, "autoscaling", "horizontalpodautoscalers"),
			rule("update", "autoscaling", "horizontalpodautoscalers/status"),
			rule("get update", "*", "*/scale"),
			rule("list watch", core, "pods"),
			rule("list watch", "metrics.k8s.io", "pods"),
			rule(read, "custom.metrics.k8s.io", "*"),
			rule(read, "external.metrics.k8s.io", "*"),
		}},
		{account: "ttl-after-finished-controller", rules: []rbacv1.PolicyRule{
			rule("delete get list watch", "batch", "jobs"),
		}},
		{account: "endpoint-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "pods services"),
			rule("create delete get list update watch", core, "endpoints"),
			rule("create", core, "endpoints/restricted"),
		}},
		{account: "endpointslice-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "nodes pods services"),
			rule("update", core, "services/finalizers"),
			rule("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
		}},
		{account: "endpointslicemirroring-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "endpoints services"),
			rule("update", core, "services/finalizers"),
			rule("update", core, "endpoints/finalizers"),
			rule("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
		}},
	}
}

func clusterControllers() []controllerRole {
	return []controllerRole{
		{account: "clusterrole-aggregation-controller", noEvents: true, rules: []rbacv1.PolicyRule{
			// The controller writes arbitrary rules, so it needs the verb escalate.
			rule("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles"),
		}},
		{account: "certificate-controller", rules: []rbacv1.PolicyRule{
			rule("delete get list watch", "certificates.k8s.io", "certificatesigningrequests"),
			rule("update", "certificates.k8s.io", "certificatesigningrequests/approval certificatesigningrequests/status"),
			rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
			rule("sign", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown", "kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"),
			rule("create", "authorization.k8s.io", "subjectaccessreviews"),
		}},
		{account: "generic-garbage-collector", rules: []rbacv1.PolicyRule{
			rule("delete get list patch update watch", "*", "*"),
		}},
		{account: "namespace-controller", noEvents: true, rules: []rbacv1.PolicyRule{
			rule("delete get list watch", core, "namespaces"),
			rule("update", core, "namespaces/finalize namespaces/status"),
			rule("delete deletecollection get list watch", "*", "*"),
		}},
		{account: "node-controller", rules: []rbacv1.PolicyRule{
			rule("delete get list patch update", core, "nodes"),
			rule("watch", core, "nodes"),
			rule("patch update", core, "nodes/status"),
			rule("patch update", core, "pods/status"),
			rule("delete list watch", core, "pods"),
			rule("get", core, "pods"),
		}},
		{account: "pod-garbage-collector", noEvents: true, rules: []rbacv1.PolicyRule{
			rule("delete list watch", core, "pods"),
			rule("get list watch", core, "nodes"),
			rule("patch", core, "pods/status"),
		}},
		{account: "resourcequota-controller", rules: []rbacv1.PolicyRule{
			rule("list watch", "*", "*"),
			rule("update", core, "resourcequotas/status"),
		}},
		{account: "route-controller", rules: []rbacv1.PolicyRule{
			rule("list watch", core, "nodes"),
			rule("patch", core, "nodes/status"),
		}},
		{account: "service-account-controller", rules: []rbacv1.PolicyRule{
			rule("create", core, "serviceaccounts"),
		}},
		{account: "service-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "services"),
			rule("patch update", core, "services/status"),
			rule("list watch", core, "nodes"),
		}},
		{account: "service-cidrs-controller", rules: []rbacv1.PolicyRule{
			rule("get list patch update watch", "networking.k8s.io", "servicecidrs"),
			rule("patch update", "networking.k8s.io", "servicecidrs/finalizers servicecidrs/status"),
			rule(read, "networking.k8s.io", "ipaddresses"),
		}},
		// These three give addresses, and explain pending ones. Upstream has no such controllers.
		{account: "load-balancer-controller", rules: []rbacv1.PolicyRule{
			rule("get list patch watch", core, "services"),
			rule("patch update", core, "services/status"),
			rule(read, core, "nodes"),
			rule(read, "discovery.k8s.io", "endpointslices"),
			rule(read, "knarr.dev", "loadbalancerpools"),
			rule("create get", "apiextensions.k8s.io", "customresourcedefinitions"),
		}},
		{account: "load-balancer-hint-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "services"),
		}},
		{account: "ingress-hint-controller", rules: []rbacv1.PolicyRule{
			rule(read, "networking.k8s.io", "ingresses ingressclasses"),
		}},
		// This one keeps the account of nodes' parts. Upstream has no such controller.
		{account: "node-account-controller", noEvents: true, rules: []rbacv1.PolicyRule{
			rule("list watch", core, "nodes serviceaccounts"),
			rule("create", core, "serviceaccounts"),
			rule("list watch", rbacv1.GroupName, "clusterrolebindings"),
			rule("delete", rbacv1.GroupName, "clusterrolebindings clusterroles rolebindings roles", RetiredNodeRole),
		}},
		// This one publishes the addresses of policies' peers. Upstream has no such controller.
		{account: "policy-peers-controller", rules: []rbacv1.PolicyRule{
			rule("list watch", "networking.k8s.io", "networkpolicies"),
			rule("list watch", core, "namespaces pods"),
			rule("create delete get list update watch", "knarr.dev", "policypeers"),
			rule("create get", "apiextensions.k8s.io", "customresourcedefinitions"),
		}},
		// This one compares declared components with the cluster. Upstream has no such controller.
		{account: "architecture-controller", rules: []rbacv1.PolicyRule{
			rule(read, "architecture.knarr.io", "components systems traffics"),
			rule("patch update", "architecture.knarr.io", "components/status systems/status"),
			rule("update", "architecture.knarr.io", "components/finalizers"),
			rule("create delete get list patch update watch", "networking.k8s.io", "networkpolicies"),
			rule(read, core, "pods services"),
			rule(read, "apps", "daemonsets deployments replicasets statefulsets"),
			rule(read, "batch", "cronjobs jobs"),
			rule(read, "discovery.k8s.io", "endpointslices"),
			rule(read, rbacv1.GroupName, "clusterrolebindings clusterroles rolebindings roles"),
			rule("create get update", "apiextensions.k8s.io", "customresourcedefinitions"),
		}},
		// This one decides whether nodes count connections. Upstream has no such controller.
		{account: "traffic-controller", noEvents: true, rules: []rbacv1.PolicyRule{
			rule("list watch", core, "nodes"),
			rule("list watch", "architecture.knarr.io", "components systems"),
			rule("create delete list watch", "architecture.knarr.io", "traffics"),
			rule("list watch", "apiextensions.k8s.io", "customresourcedefinitions"),
		}},
		// This one defines the kind SchedulerPlugin. Upstream has no such controller.
		{account: "scheduler-plugin-definition-controller", noEvents: true, rules: []rbacv1.PolicyRule{
			rule("create get update", "apiextensions.k8s.io", "customresourcedefinitions"),
		}},
		{account: "ttl-controller", rules: []rbacv1.PolicyRule{
			rule("list patch update watch", core, "nodes"),
		}},
		{account: "root-ca-cert-publisher", rules: []rbacv1.PolicyRule{
			rule("create update", core, "configmaps"),
		}},
		{account: "legacy-service-account-token-cleaner", noEvents: true, rules: []rbacv1.PolicyRule{
			rule("get", core, "configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
			rule("delete patch", core, "secrets"),
		}},
		{account: "validatingadmissionpolicy-status-controller", rules: []rbacv1.PolicyRule{
			rule(read, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
			rule("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
		}},
		{account: "device-taint-eviction-controller", rules: []rbacv1.PolicyRule{
			rule("delete get list watch", core, "pods"),
			rule("patch update", core, "pods/status"),
			rule(read, "resource.k8s.io", "deviceclasses resourceclaims resourceslices"),
		}},
	}
}

func volumeControllers() []controllerRole {
	return []controllerRole{
		{account: "attachdetach-controller", rules: []rbacv1.PolicyRule{
			rule("list watch", core, "persistentvolumeclaims persistentvolumes"),
			rule(read, core, "nodes"),
			rule("patch update", core, "nodes/status"),
			rule("list watch", core, "pods"),
			rule("create delete get list watch", "storage.k8s.io", "volumeattachments"),
			rule(read, "storage.k8s.io", "csidrivers csinodes"),
		}},
		{account: "ephemeral-volume-controller", rules: []rbacv1.PolicyRule{
			rule("get list watch", core, "pods"),
			rule("update", core, "pods/finalizers"),
			rule("create get list watch", core, "persistentvolumeclaims"),
		}},
		{account: "resource-claim-controller", rules: []rbacv1.PolicyRule{
			rule("get list watch", core, "pods"),
			rule("update", core, "pods/finalizers"),
			rule("create delete get list update watch", "resource.k8s.io", "resourceclaims"),
			rule("update patch", "resource.k8s.io", "resourceclaims resourceclaims/binding resourceclaims/status"),
			rule("patch update", core, "pods/status"),
		}},
		{account: "expand-controller", rules: []rbacv1.PolicyRule{
			rule("get list patch update watch", core, "persistentvolumes"),
			rule("patch update", core, "persistentvolumeclaims/status"),
			rule(read, core, "persistentvolumeclaims"),
		}},
		{account: "persistent-volume-binder", rules: []rbacv1.PolicyRule{
			rule("create delete get list update watch", core, "persistentvolumes"),
			rule("update", core, "persistentvolumes/status"),
			rule("get list update watch", core, "persistentvolumeclaims"),
			rule("update", core, "persistentvolumeclaims/status"),
			rule("create delete get list watch", core, "pods"),
			rule(read, "storage.k8s.io", "storageclasses"),
			rule("list", core, "nodes"),
			rule("watch", core, "events nodes"),
		}},
		// This one provisions volumes on the disks of nodes. Upstream has no such controller.
		{account: "local-volume-controller", rules: []rbacv1.PolicyRule{
			rule("create delete get list update watch", core, "persistentvolumes"),
			rule("get list update watch", core, "persistentvolumeclaims"),
			rule("update", core, "persistentvolumeclaims/status"),
			rule(read, core, "nodes"),
			rule("create", core, "configmaps"),
			rule("get", core, "configmaps", "knarr-local-storage"),
			rule("create get list watch", "storage.k8s.io", "storageclasses"),
			rule("create get list update watch", "storage.k8s.io", "csidrivers"),
			rule("create delete get list update watch", "storage.k8s.io", "csistoragecapacities"),
		}},
		{account: "pvc-protection-controller", rules: []rbacv1.PolicyRule{
			rule("get list update watch", core, "persistentvolumeclaims"),
			rule("update", core, "persistentvolumeclaims/status"),
			rule("get list watch", core, "pods"),
		}},
		{account: "pv-protection-controller", rules: []rbacv1.PolicyRule{
			rule("get list update watch", core, "persistentvolumes"),
		}},
		{account: "selinux-warning-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "persistentvolumeclaims persistentvolumes pods"),
			rule(read, "storage.k8s.io", "csidrivers"),
		}},
		{account: "volumeattributesclass-protection-controller", rules: []rbacv1.PolicyRule{
			rule(read, core, "persistentvolumeclaims persistentvolumes"),
			rule("get list update watch", "storage.k8s.io", "volumeattributesclasses"),
		}},
	}
}
