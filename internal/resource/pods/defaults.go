package pods

import (
	"maps"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// defaultPod sets the defaults that only pods get, then those that pods share with templates.
func defaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	for i := range spec.Containers {
		requestLimits(&spec.Containers[i].Resources)
	}
	for i := range spec.InitContainers {
		requestLimits(&spec.InitContainers[i].Resources)
	}
	DefaultPodLevelRequests(pod)
	strategy.SetPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if spec.HostNetwork {
		defaultHostPorts(spec.Containers)
		defaultHostPorts(spec.InitContainers)
	}
	defaultPodSpec(spec)
	reconcilePodIPs(&pod.Status)
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			strategy.RoundResources(statuses[i].AllocatedResources)
			if r := statuses[i].Resources; r != nil {
				strategy.RoundResources(r.Limits)
				strategy.RoundResources(r.Requests)
			}
		}
	}
}

// requestLimits makes the limit of a resource its request where there is no request.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; ok {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = limit.DeepCopy()
	}
}

// DefaultPodLevelRequests sets missing requests of a pod with pod-level limits (KEP-2837). The
// request is the sum of its containers' requests, or the limit if no container requests the
// resource. Huge pages cannot be overcommitted: their limit is always the request.
func DefaultPodLevelRequests(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil || len(r.Limits) == 0 {
		return
	}
	containers := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(containers, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	})
	for _, wanted := range []corev1.ResourceList{containers, r.Limits} {
		for name, amount := range wanted {
			if _, ok := r.Requests[name]; ok || !resourcehelper.IsSupportedPodLevelResource(name) {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = amount.DeepCopy()
		}
	}
}

func defaultHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			p := &containers[i].Ports[j]
			strategy.SetDefault(&p.HostPort, p.ContainerPort)
		}
	}
}

// reconcilePodIPs makes podIP the first of podIPs; podIP wins.
func reconcilePodIPs(status *corev1.PodStatus) {
	switch {
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	}
}

func defaultPodSpec(spec *corev1.PodSpec) {
	strategy.SetDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	strategy.SetDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	strategy.SetPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	strategy.SetPointer(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	strategy.SetDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	// serviceAccount is the old name of serviceAccountName and always has the same value.
	strategy.SetDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	if spec.DeprecatedServiceAccount != spec.ServiceAccountName {
		spec.DeprecatedServiceAccount = spec.ServiceAccountName
	}
	strategy.RoundResources(spec.Overhead)
	if spec.Resources != nil {
		strategy.RoundResources(spec.Resources.Limits)
		strategy.RoundResources(spec.Resources.Requests)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		// EphemeralContainerCommon and Container have the same fields by design; the library's own
		// conversion relies on it too.
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&c)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = defaultPullPolicy(c.Image)
	}
	strategy.SetDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	strategy.SetDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		strategy.SetDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				strategy.SetPointer(&from.FileKeyRef.Optional, false)
			}
		}
	}
	strategy.RoundResources(c.Resources.Limits)
	strategy.RoundResources(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// defaultPullPolicy returns Always for images with the tag "latest" or without a tag.
func defaultPullPolicy(image string) corev1.PullPolicy {
	if image == "" || strings.Contains(image, "@") {
		// Without a name, the reference is invalid. A digest names exactly one image, unless the
		// tag before it is latest.
		before, _, _ := strings.Cut(image, "@")
		if !strings.HasSuffix(before, ":latest") {
			return corev1.PullIfNotPresent
		}
		return corev1.PullAlways
	}
	name := image[strings.LastIndex(image, "/")+1:]
	if _, tag, tagged := strings.Cut(name, ":"); tagged && tag != "latest" {
		return corev1.PullIfNotPresent // an invalid reference too, so it need not be parsed
	}
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	strategy.SetDefault(&p.TimeoutSeconds, 1)
	strategy.SetDefault(&p.PeriodSeconds, 10)
	strategy.SetDefault(&p.SuccessThreshold, 1)
	strategy.SetDefault(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		strategy.SetPointer(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	strategy.SetDefault(&h.Path, "/")
	strategy.SetDefault(&h.Scheme, corev1.URISchemeHTTP)
}

func defaultFieldRef(f *corev1.ObjectFieldSelector) {
	if f != nil {
		strategy.SetDefault(&f.APIVersion, "v1")
	}
}

// DefaultTargetPort sets a missing target port to the port itself.
func DefaultTargetPort(target *intstr.IntOrString, port int32) {
	if *target == intstr.FromInt32(0) || *target == intstr.FromString("") {
		*target = intstr.FromInt32(port)
	}
}
