package why

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/architecture"
)

// allRules returns all rules. Those of one resource are in the order of their findings.
func allRules() []Rule {
	return []Rule{
		on("pod scheduling", podScheduling),
		on("pod on a missing node", podNode),
		on("pod on a node that is not ready", podOnBadNode),
		on("pod configuration", podConfig),
		on("pod images", podImages),
		on("pod volumes and sandbox", podSetup),
		on("pod containers", podContainers),
		on("claim binding", claimBinding),
		on("volume phase", volumePhase),
		on("resource claim", deviceClaim),
		on("service endpoints", serviceEndpoints),
		on("service address", serviceAddress),
		on("ingress", ingress),
		on("deployment", deployment),
		on("replica set", replicaSet),
		on("stateful set", statefulSet),
		on("daemon set", daemonSet),
		on("job", job),
		on("cron job", cronJob),
		on("autoscaler", autoscaler),
		on("node", node),
		on("API service", apiService),
		on("custom resource definition", definition),
		on("validating webhooks", validatingWebhooks),
		on("mutating webhooks", mutatingWebhooks),
		on("certificate signing request", signingRequest),
		on("disruption budget", budget),
		on("quota", quota),
		{"component", architecture.Components.GroupResource(), component},
		{"system", architecture.Systems.GroupResource(), system},
		on("TLS secret", tlsSecret),
		on("lease", lease),
		{Name: "custom resource", Find: custom},
		{Name: "deletion", Find: deletion},
	}
}

// sweep lists the resources that a question about a namespace or the cluster examines. A quota that
// is used up is no fault by itself; the workload that it stops is.
var sweep = []schema.GroupResource{
	{Resource: "nodes"},
	{Resource: "namespaces"},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
	{Resource: "persistentvolumes"},
	{Resource: "pods"},
	{Resource: "persistentvolumeclaims"},
	{Resource: "services"},
	{Group: "networking.k8s.io", Resource: "ingresses"},
	{Group: "apps", Resource: "deployments"},
	{Group: "apps", Resource: "replicasets"},
	{Group: "apps", Resource: "statefulsets"},
	{Group: "apps", Resource: "daemonsets"},
	{Group: "batch", Resource: "jobs"},
	{Group: "batch", Resource: "cronjobs"},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"},
	{Group: "policy", Resource: "poddisruptionbudgets"},
}
