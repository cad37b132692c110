package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// removal is an API version that Kubernetes has removed (its Deprecated API Migration Guide).
type removal struct {
	release string // that does not serve it any more
	instead string // apiVersion; "" if there is none
	// differs says what an object needs besides the other apiVersion; "" if nothing.
	differs string
}

var (
	ingressDiffers = "spec.backend is spec.defaultBackend, each path needs a pathType, and a backend names service.name and service.port"
	selectorNeeded = "spec.selector is required"
)

// removed has the kinds of removed versions.
var removed = removals()

func removals() map[schema.GroupVersionKind]removal {
	removed := map[schema.GroupVersionKind]removal{}
	add := func(release, group, version, instead, differs string, kinds ...string) {
		for _, k := range kinds {
			removed[schema.GroupVersionKind{Group: group, Version: version, Kind: k}] = removal{release, instead, differs}
		}
	}
	workloads := []string{"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "ControllerRevision"}
	add("v1.16", "extensions", "v1beta1", "apps/v1", selectorNeeded, "DaemonSet", "Deployment", "ReplicaSet")
	add("v1.16", "extensions", "v1beta1", "networking.k8s.io/v1", "", "NetworkPolicy")
	add("v1.16", "extensions", "v1beta1", "", "", "PodSecurityPolicy")
	add("v1.16", "apps", "v1beta1", "apps/v1", selectorNeeded, workloads...)
	add("v1.16", "apps", "v1beta2", "apps/v1", selectorNeeded, workloads...)
	add("v1.22", "extensions", "v1beta1", "networking.k8s.io/v1", ingressDiffers, "Ingress")
	add("v1.22", "networking.k8s.io", "v1beta1", "networking.k8s.io/v1", ingressDiffers, "Ingress")
	add("v1.22", "networking.k8s.io", "v1beta1", "networking.k8s.io/v1", "", "IngressClass")
	add("v1.22", "admissionregistration.k8s.io", "v1beta1", "admissionregistration.k8s.io/v1", "sideEffects and admissionReviewVersions are required", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	add("v1.22", "apiextensions.k8s.io", "v1beta1", "apiextensions.k8s.io/v1", "each version has its own structural schema", "CustomResourceDefinition")
	add("v1.22", "apiregistration.k8s.io", "v1beta1", "apiregistration.k8s.io/v1", "", "APIService")
	add("v1.22", "authentication.k8s.io", "v1beta1", "authentication.k8s.io/v1", "", "TokenReview")
	add("v1.22", "authorization.k8s.io", "v1beta1", "authorization.k8s.io/v1", "spec.group is spec.groups", "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SubjectAccessReview", "SelfSubjectRulesReview")
	add("v1.22", "certificates.k8s.io", "v1beta1", "certificates.k8s.io/v1", "spec.signerName and spec.usages are required", "CertificateSigningRequest")
	add("v1.22", "coordination.k8s.io", "v1beta1", "coordination.k8s.io/v1", "", "Lease")
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		add("v1.22", "rbac.authorization.k8s.io", version, "rbac.authorization.k8s.io/v1", "", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
		add("v1.22", "scheduling.k8s.io", version, "scheduling.k8s.io/v1", "", "PriorityClass")
	}
	add("v1.22", "storage.k8s.io", "v1beta1", "storage.k8s.io/v1", "", "CSIDriver", "CSINode", "StorageClass", "VolumeAttachment")
	add("v1.25", "batch", "v1beta1", "batch/v1", "", "CronJob")
	add("v1.25", "discovery.k8s.io", "v1beta1", "discovery.k8s.io/v1", "endpoints have nodeName and zone instead of topology", "EndpointSlice")
	add("v1.25", "events.k8s.io", "v1beta1", "events.k8s.io/v1", "", "Event")
	add("v1.25", "autoscaling", "v2beta1", "autoscaling/v2", "a metric's target has type and value", "HorizontalPodAutoscaler")
	add("v1.25", "policy", "v1beta1", "policy/v1", "an empty selector selects all pods", "PodDisruptionBudget")
	add("v1.25", "policy", "v1beta1", "", "", "PodSecurityPolicy")
	add("v1.25", "node.k8s.io", "v1beta1", "node.k8s.io/v1", "", "RuntimeClass")
	add("v1.26", "autoscaling", "v2beta2", "autoscaling/v2", "", "HorizontalPodAutoscaler")
	add("v1.27", "storage.k8s.io", "v1beta1", "storage.k8s.io/v1", "", "CSIStorageCapacity")
	for version, release := range map[string]string{"v1beta1": "v1.26", "v1beta2": "v1.29", "v1beta3": "v1.32"} {
		add(release, "flowcontrol.apiserver.k8s.io", version, "flowcontrol.apiserver.k8s.io/v1", "", "FlowSchema", "PriorityLevelConfiguration")
	}
	return removed
}

// removedKind explains a kind of a removed version.
func removedKind(gvk schema.GroupVersionKind) (unknown, bool) {
	r, ok := removed[gvk]
	if !ok {
		return unknown{}, false
	}
	u := unknown{field: "apiVersion", severity: Error, message: fmt.Sprintf("%s %s was removed in Kubernetes %s", gvk.GroupVersion(), gvk.Kind, r.release)}
	switch {
	case r.instead == "":
		u.message += "; there is no successor: use Pod Security admission"
	case r.differs == "":
		u.message += "; use " + r.instead
		u.nearest = []string{r.instead}
	default:
		u.message += fmt.Sprintf("; use %s, where %s", r.instead, r.differs)
	}
	return u, true
}
