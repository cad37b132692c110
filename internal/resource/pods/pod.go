// Package pods holds the kind Pod, and what pod templates of other kinds share with it: defaults,
// validation and warnings of a pod spec. Other kinds use template.go.
package pods

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func Strategy() *strategy.Strategy {
	s := &strategy.Strategy{
		AllowUnconditionalUpdate: true,
		Default:                  strategy.On(defaultPod),
		Share:                    strategy.On(sharePod),
		WarningsAsSent:           func(obj runtime.Object) []string { return warnAppArmor(obj.(*corev1.Pod)) },
		Resets:                   map[string][]string{"status": {"metadata.deletionTimestamp", "metadata.ownerReferences"}},
		PrepareCreate:            strategy.On(preparePod),
		PrepareUpdate:            strategy.OnBoth(preparePodUpdate),
		PrepareStatus:            strategy.OnBoth(preparePodStatus),
		ValidateCreate:           strategy.Checks(validatePodCreate),
		ValidateUpdate:           strategy.ChecksBoth(validatePodUpdate),
		ValidateStatus:           strategy.ChecksBoth(validatePodStatus),
		Subresource: map[string]strategy.UpdateStrategy{
			"ephemeralcontainers": {Prepare: strategy.OnBoth(prepareEphemeralContainers), Validate: strategy.ChecksBoth(validateEphemeralUpdate)},
			"resize":              {Prepare: strategy.OnBoth(prepareResize), Validate: strategy.ChecksBoth(validateResize)},
		},
		GracefulDelete: podGrace,
		FieldNames: []string{
			"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
			"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
		},
		FieldAliases: map[string]string{"spec.host": "spec.nodeName"},
		Fields:       podFields,
	}
	return strategy.Show(strategy.WithNameRuleOnUpdate(WithTemplateRules(s)), podColumns, podRow)
}

func podFields(obj runtime.Object) fields.Set {
	p := obj.(*corev1.Pod)
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

func preparePod(p *corev1.Pod) {
	p.Generation = 1
	leastGrace(&p.Spec)
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: QOSClass(p)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: p.CreationTimestamp,
		}}
	}
	mergeMatchLabelKeys(p)
	takeAppArmor(p)
}

// mergeMatchLabelKeys writes the pod's values of matchLabelKeys and mismatchLabelKeys into its
// label selectors. Later label changes then do not matter (KEP-3633 for affinity, KEP-3243 for
// spreading).
func mergeMatchLabelKeys(p *corev1.Pod) {
	if a := p.Spec.Affinity; a != nil {
		var terms []*corev1.PodAffinityTerm
		collect := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
			for i := range required {
				terms = append(terms, &required[i])
			}
			for i := range preferred {
				terms = append(terms, &preferred[i].PodAffinityTerm)
			}
		}
		if a.PodAffinity != nil {
			collect(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			collect(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		for _, t := range terms {
			if t.LabelSelector != nil {
				requireLabels(t.LabelSelector, p.Labels, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
				requireLabels(t.LabelSelector, p.Labels, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
			}
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		if c := &p.Spec.TopologySpreadConstraints[i]; c.LabelSelector != nil {
			requireLabels(c.LabelSelector, p.Labels, c.MatchLabelKeys, metav1.LabelSelectorOpIn)
		}
	}
}

func requireLabels(s *metav1.LabelSelector, labels map[string]string, keys []string, op metav1.LabelSelectorOperator) {
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
		}
	}
}

// leastGrace raises a negative grace period to one second.
func leastGrace(spec *corev1.PodSpec) {
	if seconds := spec.TerminationGracePeriodSeconds; seconds != nil && *seconds < 0 {
		least := int64(1)
		spec.TerminationGracePeriodSeconds = &least
	}
}

func preparePodUpdate(p, old *corev1.Pod) {
	leastGrace(&p.Spec)
	p.Status = *old.Status.DeepCopy()
	bumpPod(p, old)
}

func bumpPod(p, old *corev1.Pod) {
	strategy.SetGeneration(p, old, !apiequality.Semantic.DeepEqual(p.Spec, old.Spec))
}

func preparePodStatus(p, old *corev1.Pod) {
	p.Spec = *old.Spec.DeepCopy()
	p.DeletionTimestamp = nil
	if old.DeletionTimestamp != nil {
		p.DeletionTimestamp = old.DeletionTimestamp.DeepCopy()
	}
	// Old kubelets send owner references back as they read them; a status update cannot change
	// them.
	p.OwnerReferences = slices.Clone(old.OwnerReferences)
	p.Generation = old.Generation
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = storedQOS(old)
	}
	reconcilePodIPs(&p.Status)
	dropVolumeStatus(&p.Status)
}

// dropVolumeStatus clears the status of image volumes, because image digests (KEP-4639) are off.
func dropVolumeStatus(s *corev1.PodStatus) {
	for _, containers := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				containers[i].VolumeMounts[j].VolumeStatus = nil
			}
		}
	}
}

// storedQOS returns the QoS class in the status, or computes it from the spec if the status has
// none.
func storedQOS(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return QOSClass(p)
}

func prepareEphemeralContainers(p, old *corev1.Pod) {
	containers := p.Spec.EphemeralContainers
	rest(p, old)
	p.Spec.EphemeralContainers = containers
	bumpPod(p, old)
}

// prepareResize keeps everything but the resources of the containers and of the pod. It keeps other
// lists of containers as they are: validateResize refuses them.
func prepareResize(p, old *corev1.Pod) {
	wanted := p.Spec
	rest(p, old)
	p.Spec.Resources = wanted.Resources
	resize := func(containers, wanted []corev1.Container) []corev1.Container {
		if !sameNames(containers, wanted) {
			return wanted
		}
		for i := range containers {
			containers[i].Resources = wanted[i].Resources
			containers[i].ResizePolicy = wanted[i].ResizePolicy
		}
		return containers
	}
	p.Spec.Containers = resize(p.Spec.Containers, wanted.Containers)
	p.Spec.InitContainers = resize(p.Spec.InitContainers, wanted.InitContainers)
	bumpPod(p, old)
}

// rest resets everything to its old value except the metadata that every update may change.
func rest(p, old *corev1.Pod) {
	version, managed := p.ResourceVersion, p.ManagedFields
	old.DeepCopyInto(p)
	p.ResourceVersion, p.ManagedFields = version, managed
}

func podGrace(obj runtime.Object, opts *metav1.DeleteOptions) (int64, bool) {
	p := obj.(*corev1.Pod)
	var seconds int64
	switch {
	case opts != nil && opts.GracePeriodSeconds != nil:
		seconds = *opts.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		seconds = 0 // no process has to stop
	}
	if seconds < 0 {
		seconds = 1
	}
	return seconds, true
}

// QOSClass returns a pod's quality of service. It follows from the requests and limits of the pod
// as a whole where given, otherwise from those of its containers:
// - Guaranteed: CPU and memory have limits everywhere and equal requests;
// - BestEffort: there are neither requests nor limits;
// - Burstable: everything else.
func QOSClass(p *corev1.Pod) corev1.PodQOSClass {
	if r := p.Spec.Resources; r != nil {
		return qosOf([]corev1.ResourceRequirements{*r})
	}
	var all []corev1.ResourceRequirements
	for i := range p.Spec.Containers {
		all = append(all, p.Spec.Containers[i].Resources)
	}
	for i := range p.Spec.InitContainers {
		all = append(all, p.Spec.InitContainers[i].Resources)
	}
	return qosOf(all)
}

var qosResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

func qosOf(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := true
	add := func(sum, list corev1.ResourceList, name corev1.ResourceName) bool {
		q := list[name]
		if q.Sign() <= 0 {
			return false
		}
		total := sum[name]
		total.Add(q)
		sum[name] = total
		return true
	}
	for i := range all {
		for _, name := range qosResources {
			add(requests, all[i].Requests, name)
			if !add(limits, all[i].Limits, name) {
				guaranteed = false
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	equal := maps.EqualFunc(requests, limits, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	if guaranteed && equal {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
