package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	resourcehelper "k8s.io/component-helpers/resource"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/resource/pods"
)

// CountName is the quota resource that counts objects of a kind: count/deployments.apps.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + gr.String())
}

// countedAlone are kinds that quotas also count under their bare name.
var countedAlone = []string{"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"}

// QuotaUsage returns how much an object uses of each resource that a ResourceQuota can bound
// ("Resource Quotas" in the reference). now decides whether a deleted pod still counts.
func QuotaUsage(gr schema.GroupResource, obj runtime.Object, now metav1.Time) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{CountName(gr): one}
	if pod, ok := obj.(*corev1.Pod); ok {
		if QuotaCountsPod(pod, now) {
			podUsage(used, pod)
		}
		return used
	}
	if gr.Group == "" && slices.Contains(countedAlone, gr.Resource) {
		used[corev1.ResourceName(gr.Resource)] = one
	}
	switch o := obj.(type) {
	case *corev1.Service:
		serviceUsage(used, o)
	case *corev1.PersistentVolumeClaim:
		claimUsage(used, o)
	}
	return used
}

// QuotaCountsPod reports whether a pod still holds compute resources: it has not ended, and its
// grace period for deletion has not passed.
func QuotaCountsPod(pod *corev1.Pod, now metav1.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
		// deletionTimestamp is already the end of the grace period.
		return !now.Time.After(pod.DeletionTimestamp.Time)
	}
	return true
}

func podUsage(used corev1.ResourceList, pod *corev1.Pod) {
	used[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	for name, value := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			used[name] = value
			used["requests."+name] = value
		default:
			if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				used[name] = value
			}
			used["requests."+name] = value
		}
	}
	for name, value := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			used["limits."+name] = value
		}
	}
}

func serviceUsage(used corev1.ResourceList, s *corev1.Service) {
	used[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(0, resource.DecimalSI)
	used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(0, resource.DecimalSI)
	ports := int64(len(s.Spec.Ports))
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
	case corev1.ServiceTypeLoadBalancer:
		used[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(1, resource.DecimalSI)
		if allocate := s.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports = 0
			for _, p := range s.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
		used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
	}
}

func claimUsage(used corev1.ResourceList, c *corev1.PersistentVolumeClaim) {
	class := volumehelper.GetPersistentVolumeClaimClass(c)
	storage, asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
	// During an expansion, and after a failed one, the allocated size counts.
	if allocated, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(storage) > 0 {
		storage, asked = allocated, true
	}
	if asked {
		used[corev1.ResourceRequestsStorage] = storage
	}
	if class != "" {
		prefix := corev1.ResourceName(class + ".storageclass.storage.k8s.io/")
		used[prefix+corev1.ResourcePersistentVolumeClaims] = *resource.NewQuantity(1, resource.DecimalSI)
		if asked {
			used[prefix+corev1.ResourceRequestsStorage] = storage
		}
	}
}

// QuotaScopes returns all scopes of a quota as selector requirements.
func QuotaScopes(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, s := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// QuotaConcerns reports whether an object is in all scopes of the quota.
func QuotaConcerns(q *corev1.ResourceQuota, obj runtime.Object) bool {
	for _, scope := range QuotaScopes(q) {
		if !QuotaInScope(scope, obj) {
			return false
		}
	}
	return true
}

// QuotaInScope reports whether an object is in a scope. Only pods, and claims by their attributes
// class, can be in one.
func QuotaInScope(scope corev1.ScopedResourceSelectorRequirement, obj runtime.Object) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return podInScope(o, scope)
	case *corev1.PersistentVolumeClaim:
		return scope.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && claimInScope(o, scope)
	}
	return false
}

func podInScope(pod *corev1.Pod, scope corev1.ScopedResourceSelectorRequirement) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	bestEffort := pods.QOSClass(pod) == corev1.PodQOSBestEffort
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		if scope.Operator == corev1.ScopeSelectorOpExists {
			return pod.Spec.PriorityClassName != ""
		}
		return matchesScope(scope, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod)
	}
	return false
}

// AttributesClasses lists the volume attributes classes of a claim without repetition: the
// desired one, the current one, and that of a modification under way.
func AttributesClasses(c *corev1.PersistentVolumeClaim) (names []string) {
	add := func(name *string) {
		if name != nil && *name != "" && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	add(c.Spec.VolumeAttributesClassName)
	add(c.Status.CurrentVolumeAttributesClassName)
	if status := c.Status.ModifyVolumeStatus; status != nil {
		add(&status.TargetVolumeAttributesClassName)
	}
	return names
}

func claimInScope(c *corev1.PersistentVolumeClaim, scope corev1.ScopedResourceSelectorRequirement) bool {
	names := AttributesClasses(c)
	if scope.Operator == corev1.ScopeSelectorOpExists {
		return len(names) > 0
	}
	if len(names) == 0 {
		return matchesScope(scope, "")
	}
	return slices.ContainsFunc(names, func(n string) bool { return matchesScope(scope, n) })
}

// matchesScope evaluates a scope's operator as a label selector on a single value; "" means the
// value is absent.
func matchesScope(scope corev1.ScopedResourceSelectorRequirement, value string) bool {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	r, err := labels.NewRequirement(string(scope.ScopeName), operators[scope.Operator], scope.Values)
	if err != nil {
		return false
	}
	set := labels.Set{}
	if value != "" {
		set[string(scope.ScopeName)] = value
	}
	return r.Matches(set)
}

func crossesNamespaces(pod *corev1.Pod) bool {
	if pod.Spec.Affinity == nil {
		return false
	}
	term := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
	weighted := func(t corev1.WeightedPodAffinityTerm) bool { return term(t.PodAffinityTerm) }
	if a := pod.Spec.Affinity.PodAffinity; a != nil {
		if slices.ContainsFunc(a.RequiredDuringSchedulingIgnoredDuringExecution, term) || slices.ContainsFunc(a.PreferredDuringSchedulingIgnoredDuringExecution, weighted) {
			return true
		}
	}
	if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
		return slices.ContainsFunc(a.RequiredDuringSchedulingIgnoredDuringExecution, term) || slices.ContainsFunc(a.PreferredDuringSchedulingIgnoredDuringExecution, weighted)
	}
	return false
}

// QuotaKind returns the kind of objects that use a quota resource: pods for "cpu", deployments.apps
// for "count/deployments.apps". ok is false if no kind uses the name.
func QuotaKind(name corev1.ResourceName) (gr schema.GroupResource, ok bool) {
	text := string(name)
	if counted, found := strings.CutPrefix(text, "count/"); found {
		return schema.ParseGroupResource(counted), counted != ""
	}
	switch {
	case slices.Contains(countedAlone, text):
		return schema.GroupResource{Resource: text}, true
	case name == corev1.ResourceServicesLoadBalancers || name == corev1.ResourceServicesNodePorts:
		return schema.GroupResource{Resource: "services"}, true
	case name == corev1.ResourceRequestsStorage || strings.Contains(text, ".storageclass.storage.k8s.io/"):
		return schema.GroupResource{Resource: "persistentvolumeclaims"}, true
	case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(text, "requests.") || strings.HasPrefix(text, "limits.") || strings.HasPrefix(text, corev1.ResourceHugePagesPrefix):
		return schema.GroupResource{Resource: "pods"}, true
	}
	return schema.GroupResource{}, false
}

// QuotaMissing lists the bounded compute resources for which containers of a new pod state no
// amount, with these containers: "limits.cpu for: a,b". The quota cannot account for such a pod.
func QuotaMissing(pod *corev1.Pod, bounded []corev1.ResourceName) []string {
	var missing []string
	for _, name := range slices.Sorted(slices.Values(bounded)) {
		var inLimits bool
		plain := strings.TrimPrefix(string(name), "requests.")
		if rest, ok := strings.CutPrefix(string(name), "limits."); ok {
			plain, inLimits = rest, true
		}
		switch corev1.ResourceName(plain) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			continue
		}
		if r := pod.Spec.Resources; r != nil {
			list := r.Requests
			if inLimits {
				list = r.Limits
			}
			if _, ok := list[corev1.ResourceName(plain)]; ok {
				continue
			}
		}
		var containers []string
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			list := c.Resources.Requests
			if inLimits {
				list = c.Resources.Limits
			}
			if _, ok := list[corev1.ResourceName(plain)]; !ok {
				containers = append(containers, c.Name)
			}
		}
		if len(containers) > 0 {
			missing = append(missing, string(name)+" for: "+strings.Join(slices.Compact(slices.Sorted(slices.Values(containers))), ","))
		}
	}
	return missing
}
