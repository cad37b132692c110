package framework

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"
)

// The requests that a container without any counts with when nodes are scored, as upstream. They do
// not count when nodes are filtered.
const (
	defaultMilliCPU int64 = 100
	defaultMemory   int64 = 200 << 20
)

// Resources is an amount of each resource: CPU in thousandths, the others in bytes or counts.
type Resources struct {
	MilliCPU         int64
	Memory           int64
	EphemeralStorage int64
	Pods             int64
	Scalar           map[corev1.ResourceName]int64
}

// Add adds sign × o.
func (r *Resources) Add(o *Resources, sign int64) {
	r.MilliCPU += sign * o.MilliCPU
	r.Memory += sign * o.Memory
	r.EphemeralStorage += sign * o.EphemeralStorage
	r.Pods += sign * o.Pods
	for name, v := range o.Scalar {
		if r.Scalar == nil {
			r.Scalar = map[corev1.ResourceName]int64{}
		}
		r.Scalar[name] += sign * v
	}
}

// ResourcesOf converts a resource list.
func ResourcesOf(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = q.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.EphemeralStorage = q.Value()
		case corev1.ResourcePods:
			r.Pods = q.Value()
		default:
			if r.Scalar == nil {
				r.Scalar = map[corev1.ResourceName]int64{}
			}
			r.Scalar[name] = q.Value()
		}
	}
	return r
}

// Term is one pod affinity term, compiled.
type Term struct {
	Namespaces        map[string]bool
	NamespaceSelector labels.Selector // nil matches no namespace
	Selector          labels.Selector
	TopologyKey       string
	Weight            int64 // of preferred terms
	// ID is equal for terms that select the same pods in the same topology.
	ID string
}

// Matches reports whether the term selects a pod with these labels in this namespace.
func (t *Term) Matches(namespace string, podLabels, namespaceLabels labels.Set) bool {
	inNamespace := t.Namespaces[namespace] || t.NamespaceSelector != nil && t.NamespaceSelector.Matches(namespaceLabels)
	return inNamespace && t.Selector.Matches(podLabels)
}

// PodInfo is a pod with the values that are computed from it once.
type PodInfo struct {
	Pod      *corev1.Pod
	Requests Resources
	// Scored is Requests with defaults for containers without requests.
	Scored Resources
	Ports  []HostPort

	RequiredAffinity, RequiredAntiAffinity   []Term
	PreferredAffinity, PreferredAntiAffinity []Term
	// NodeAffinity joins the node selector and the required node affinity.
	NodeAffinity nodeaffinity.RequiredNodeAffinity
	// Claims are the PersistentVolumeClaims of the pod's volumes.
	Claims []VolumeClaim
	// Invalid is the error in the pod's affinity; such a pod is unschedulable.
	Invalid error
}

// VolumeClaim names the PersistentVolumeClaim of one of the pod's volumes. The claim of an
// ephemeral volume is made for the pod.
type VolumeClaim struct {
	Name      string
	Ephemeral bool
}

// HostPort is a port of the node that the pod asks for.
type HostPort struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

// Conflicts reports whether two pods with these ports cannot share a node.
func (p HostPort) Conflicts(o HostPort) bool {
	if p.Port != o.Port || p.Protocol != o.Protocol {
		return false
	}
	return p.IP == o.IP || p.IP == "0.0.0.0" || o.IP == "0.0.0.0"
}

// NewPodInfo computes the values that scheduling needs of a pod.
func NewPodInfo(pod *corev1.Pod) *PodInfo {
	p := &PodInfo{Pod: pod, NodeAffinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
	p.sumRequests()
	p.Requests.Pods = 1
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, restartableInit(pod)} {
		for _, c := range containers {
			for _, port := range c.Ports {
				if port.HostPort > 0 {
					p.Ports = append(p.Ports, newHostPort(port))
				}
			}
		}
	}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			p.Claims = append(p.Claims, VolumeClaim{Name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			p.Claims = append(p.Claims, VolumeClaim{Name: ephemeral.VolumeClaimName(pod, v), Ephemeral: true})
		}
	}
	p.compileAffinity()
	return p
}

// sumRequests computes Requests and Scored.
func (p *PodInfo) sumRequests() {
	if p.sumOne() {
		return
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	requests := resourcehelper.PodRequests(p.Pod, options)
	p.Requests = ResourcesOf(requests)
	options.NonMissingContainerRequests = corev1.ResourceList{
		corev1.ResourceCPU:    *milli(defaultMilliCPU),
		corev1.ResourceMemory: *bytes(defaultMemory),
	}
	if resourcehelper.IsPodLevelRequestsSet(p.Pod) {
		// Containers get a default only for a resource that neither they nor the pod requests.
		for name := range requests {
			delete(options.NonMissingContainerRequests, name)
		}
	}
	p.Scored = ResourcesOf(resourcehelper.PodRequests(p.Pod, options))
}

// sumOne is sumRequests for a pod whose only requests are those of one container; false if there
// may be others. Most pods are such, and it needs no memory.
func (p *PodInfo) sumOne() bool {
	spec, status := &p.Pod.Spec, &p.Pod.Status
	if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 || spec.Resources != nil || len(spec.Overhead) > 0 ||
		len(status.ContainerStatuses) > 0 || status.Resources != nil || len(status.AllocatedResources) > 0 {
		return false
	}
	requests := spec.Containers[0].Resources.Requests
	p.Requests = ResourcesOf(requests)
	p.Scored = p.Requests
	p.Scored.Scalar = maps.Clone(p.Requests.Scalar)
	if _, ok := requests[corev1.ResourceCPU]; !ok {
		p.Scored.MilliCPU = defaultMilliCPU
	}
	if _, ok := requests[corev1.ResourceMemory]; !ok {
		p.Scored.Memory = defaultMemory
	}
	return true
}

// UsesClaim reports whether one of the pod's volumes uses this claim.
func (p *PodInfo) UsesClaim(namespace, name string) bool {
	return p.Pod.Namespace == namespace && slices.ContainsFunc(p.Claims, func(c VolumeClaim) bool { return c.Name == name })
}

func newHostPort(port corev1.ContainerPort) HostPort {
	h := HostPort{IP: port.HostIP, Protocol: port.Protocol, Port: port.HostPort}
	if h.IP == "" {
		h.IP = "0.0.0.0"
	}
	if h.Protocol == "" {
		h.Protocol = corev1.ProtocolTCP
	}
	return h
}

func restartableInit(pod *corev1.Pod) []corev1.Container {
	var out []corev1.Container
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

// NodeInfo is a node with its pods (assumed ones included) and the sums of their requests. It is
// immutable once it is part of a Snapshot.
type NodeInfo struct {
	Node        *corev1.Node
	Allocatable Resources
	Requested   Resources
	Scored      Resources
	Pods        []*PodInfo
	// WithAffinity are the Pods with affinity or anti-affinity terms; WithAntiAffinity are those
	// with required anti-affinity.
	WithAffinity     []*PodInfo
	WithAntiAffinity []*PodInfo
	Images           map[string]int64 // bytes by name
	at               int              // index in its snapshot
	encoding         *encoding        // of Node
}

// NewNodeInfo makes a node without pods. A nil node means that only its pods are known yet.
func NewNodeInfo(node *corev1.Node) *NodeInfo {
	n := &NodeInfo{}
	n.SetNode(node)
	return n
}

// SetNode replaces the node object.
func (n *NodeInfo) SetNode(node *corev1.Node) {
	n.Node, n.Images, n.encoding = node, nil, nil
	if node == nil {
		return
	}
	n.encoding = newEncoding()
	n.Allocatable = ResourcesOf(node.Status.Allocatable)
	n.Images = make(map[string]int64, len(node.Status.Images))
	for _, img := range node.Status.Images {
		for _, name := range img.Names {
			n.Images[name] = img.SizeBytes
		}
	}
}

// Name returns the node's name.
func (n *NodeInfo) Name() string { return n.Node.Name }

// Clone returns a copy whose pods may be changed.
func (n *NodeInfo) Clone() *NodeInfo {
	c := *n
	c.Requested.Scalar = maps.Clone(n.Requested.Scalar)
	c.Scored.Scalar = maps.Clone(n.Scored.Scalar)
	c.Pods = append(make([]*PodInfo, 0, len(n.Pods)+1), n.Pods...) // most copies get one more
	c.WithAffinity = slices.Clone(n.WithAffinity)
	c.WithAntiAffinity = slices.Clone(n.WithAntiAffinity)
	return &c
}

// AddPod counts a pod on the node.
func (n *NodeInfo) AddPod(p *PodInfo) {
	n.Pods = append(n.Pods, p)
	if p.hasAffinity() {
		n.WithAffinity = append(n.WithAffinity, p)
	}
	if len(p.RequiredAntiAffinity) > 0 {
		n.WithAntiAffinity = append(n.WithAntiAffinity, p)
	}
	n.Requested.Add(&p.Requests, 1)
	n.Scored.Add(&p.Scored, 1)
}

// RemovePod removes the pod with this UID, and reports whether it was there.
func (n *NodeInfo) RemovePod(p *PodInfo) bool {
	same := func(o *PodInfo) bool { return o.Pod.UID == p.Pod.UID }
	i := slices.IndexFunc(n.Pods, same)
	if i < 0 {
		return false
	}
	old := n.Pods[i]
	n.Pods = slices.Delete(n.Pods, i, i+1)
	n.WithAffinity = slices.DeleteFunc(n.WithAffinity, same)
	n.WithAntiAffinity = slices.DeleteFunc(n.WithAntiAffinity, same)
	n.Requested.Add(&old.Requests, -1)
	n.Scored.Add(&old.Scored, -1)
	return true
}
