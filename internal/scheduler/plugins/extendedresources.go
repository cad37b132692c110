package plugins

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Extended resources that a device class provides (KEP-5004). On a node without a device plugin for
// the resource, NodeResourcesFit leaves it to DynamicResources. That plugin allocates devices for a
// claim, which the scheduler creates before it binds the pod.

// extended is what DynamicResources knows about a pod's extended resources.
type extended struct {
	// classes provide resources of the pod.
	classes map[corev1.ResourceName]*resourcev1.DeviceClass
	// leftover is the claim of an earlier attempt that was not carried out. It must go first: its
	// devices may be unusable now.
	leftover *resourcev1.ResourceClaim
	on       map[string]*framework.ExtendedClaim // by node
}

// classesOf returns the device classes that provide extended resources of the pod.
func classesOf(devices framework.Devices, pod *framework.PodInfo) map[corev1.ResourceName]*resourcev1.DeviceClass {
	var classes map[corev1.ResourceName]*resourcev1.DeviceClass
	for _, name := range framework.ExtendedRequests(pod) {
		if class, ok := framework.ClassOf(devices, name); ok {
			if classes == nil {
				classes = map[corev1.ResourceName]*resourcev1.DeviceClass{}
			}
			classes[name] = class
		}
	}
	return classes
}

// newExtended returns nil if no device class provides a resource of the pod.
func newExtended(devices framework.Devices, pod *framework.PodInfo) *extended {
	classes := classesOf(devices, pod)
	if len(classes) == 0 {
		return nil
	}
	return &extended{classes: classes, leftover: devices.ExtendedClaim(pod.Pod), on: map[string]*framework.ExtendedClaim{}}
}

// byDevices reports whether a node leaves a resource to the device class: it has no device plugin
// for it.
func byDevices(node *framework.NodeInfo, name corev1.ResourceName) bool {
	return node.Allocatable.Scalar[name] == 0
}

// claimOn returns the claim that the pod needs on a node; nil if the node's device plugins provide
// all of its extended resources.
func (e *extended) claimOn(pod *framework.PodInfo, node *framework.NodeInfo) (*framework.ExtendedClaim, *framework.Status) {
	if e == nil {
		return nil, nil
	}
	if e.leftover != nil {
		return nil, framework.RefuseAlways("cannot schedule extended resource claim")
	}
	var names []corev1.ResourceName
	for _, name := range framework.ExtendedRequests(pod) {
		_, has := e.classes[name]
		switch {
		case has && byDevices(node, name):
			names = append(names, name)
		case !has && byDevices(node, name):
			return nil, framework.RefuseAlways("cannot fit resource")
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Pod.Namespace, Name: framework.ExtendedClaimName, UID: "extended-resources-of-" + pod.Pod.UID,
		GenerateName:    pod.Pod.Name + "-extended-resources-",
		Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Pod.Name, UID: pod.Pod.UID, Controller: new(true)}},
	}}
	own := &framework.ExtendedClaim{Claim: claim}
	for _, name := range names {
		requests, mappings := requestsFor(pod.Pod, name, e.classes[name].Name)
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, requests...)
		own.Mappings = append(own.Mappings, mappings...)
	}
	slices.SortFunc(claim.Spec.Devices.Requests, func(a, b resourcev1.DeviceRequest) int { return strings.Compare(a.Name, b.Name) })
	return own, nil
}

// requestsFor returns the requests for one resource, and which containers use them. Containers that
// run for the pod's whole life have a request each. Init containers run one after the other before
// the others: they use the devices of later containers, and share one request for what is missing.
func requestsFor(pod *corev1.Pod, resource corev1.ResourceName, class string) ([]resourcev1.DeviceRequest, []corev1.ContainerExtendedResourceRequest) {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	var mappings []corev1.ContainerExtendedResourceRequest
	uses := func(c *corev1.Container, request string) {
		mappings = append(mappings, corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(resource), RequestName: request})
	}
	lasting := make([]*resourcev1.DeviceRequest, len(containers))
	for i := range containers {
		if c := &containers[i]; lasts(pod, i) && countOf(c, resource) > 0 {
			lasting[i] = newRequest(i, c, resource, class, countOf(c, resource))
			uses(c, lasting[i].Name)
		}
	}
	var shared *resourcev1.DeviceRequest
	var sharing []int // mappings to the shared request
	for i := range containers {
		c := &containers[i]
		left := countOf(c, resource)
		if lasts(pod, i) || left == 0 {
			continue
		}
		for _, later := range lasting[i:] {
			if later != nil && left > 0 {
				uses(c, later.Name)
				left -= later.Exactly.Count
			}
		}
		if left <= 0 {
			continue
		}
		if shared == nil || shared.Exactly.Count < left {
			shared = newRequest(i, c, resource, class, left)
		}
		sharing = append(sharing, len(mappings))
		uses(c, "")
	}
	for _, i := range sharing {
		mappings[i].RequestName = shared.Name
	}
	var requests []resourcev1.DeviceRequest
	for _, r := range append(lasting, shared) {
		if r != nil {
			requests = append(requests, *r)
		}
	}
	return requests, mappings
}

// lasts reports whether a container runs for the pod's whole life. Init containers come first.
func lasts(pod *corev1.Pod, i int) bool {
	if i >= len(pod.Spec.InitContainers) {
		return true
	}
	policy := pod.Spec.InitContainers[i].RestartPolicy
	return policy != nil && *policy == corev1.ContainerRestartPolicyAlways
}

// countOf returns how many devices a container asks for.
func countOf(c *corev1.Container, resource corev1.ResourceName) int64 {
	q := c.Resources.Requests[resource]
	n, _ := q.AsInt64()
	return n
}

// newRequest names the request after the index of the container and of the resource, as upstream's
// kubelet and scheduler do.
func newRequest(i int, c *corev1.Container, resource corev1.ResourceName, class string, count int64) *resourcev1.DeviceRequest {
	index := 0
	for name := range c.Resources.Requests {
		if name < resource {
			index++
		}
	}
	return &resourcev1.DeviceRequest{
		Name:    fmt.Sprintf("container-%d-request-%d", i, index),
		Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count},
	}
}

// delegated has the extended resources of a pod that device classes provide, for NodeResourcesFit.
type delegated map[corev1.ResourceName]bool

// delegates finds the pod's extended resources that device classes provide.
func delegates(pod *framework.PodInfo, snapshot *framework.Snapshot) (delegated, error) {
	if snapshot.Devices == nil || len(framework.ExtendedRequests(pod)) == 0 {
		return nil, nil
	}
	devices, err := snapshot.Devices()
	if err != nil {
		return nil, err
	}
	var found delegated
	for name := range classesOf(devices, pod) {
		if found == nil {
			found = delegated{}
		}
		found[name] = true
	}
	return found, nil
}
