package scheduler

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	gpuDriver = "gpu.example.com"
	nicDriver = "nic.example.com"
	// byClass is an extended resource that a device class provides.
	byClass = "example.com/accelerator"
)

// dynamicResources fills the case with device classes, devices and claims.
func (g *generator) dynamicResources(c *Case) {
	g.deviceClasses(c)
	for _, node := range g.nodes {
		if !g.oneIn(4) {
			g.pool(c, gpuDriver, node, func(s *resourcev1.ResourceSliceSpec) { s.NodeName = &node })
		}
		if g.oneIn(3) {
			g.pool(c, nicDriver, node, func(s *resourcev1.ResourceSliceSpec) { s.NodeName = &node })
		}
	}
	if g.oneIn(3) {
		g.pool(c, gpuDriver, "fabric", func(s *resourcev1.ResourceSliceSpec) { s.AllNodes = ptr.To(true) })
	}
	if g.oneIn(3) {
		g.pool(c, nicDriver, "zone", func(s *resourcev1.ResourceSliceSpec) {
			s.NodeSelector = nodesWith(corev1.LabelTopologyZone, pick(g, zones...))
		})
	}
	if g.oneIn(4) && len(g.nodes) > 0 {
		g.pool(c, gpuDriver, "each", func(s *resourcev1.ResourceSliceSpec) {
			s.PerDeviceNodeSelection = ptr.To(true)
			for i := range s.Devices {
				switch d := &s.Devices[i]; g.IntN(3) {
				case 0:
					d.AllNodes = ptr.To(true)
				case 1:
					d.NodeSelector = nodesWith("disk", "ssd")
				default:
					d.NodeName = ptr.To(pick(g, g.nodes...))
				}
			}
		})
	}
	for i := range 1 + g.IntN(4) {
		g.deviceClaim(c, fmt.Sprintf("d%d", i))
	}
	for i := range g.IntN(5) {
		g.taken(c, i)
	}
}

func nodesWith(label string, values ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}
}

func expression(text string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: text}}}
}

func (g *generator) deviceClasses(c *Case) {
	for i, name := range []string{"gpu", "nic", "any", "big"} {
		if g.oneIn(100) {
			continue
		}
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(i + 1), CreationTimestamp: metav1.NewTime(epoch)}}
		switch name {
		case "gpu":
			class.Spec.Selectors = expression(`device.driver == "` + gpuDriver + `"`)
			if g.on[deviceBacked] {
				class.Spec.ExtendedResourceName = ptr.To(byClass)
			}
		case "nic":
			class.Spec.Selectors = expression(`device.driver == "` + nicDriver + `"`)
			if g.oneIn(4) {
				class.Spec.Config = []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: nicDriver}}}}
			}
		case "big":
			class.Spec.Selectors = expression(`"size" in device.attributes["` + gpuDriver + `"] && device.attributes["` + gpuDriver + `"].size >= 2`)
			if g.on[deviceBacked] && g.oneIn(4) {
				// The newer class provides the resource. At the same age the name decides.
				class.Spec.ExtendedResourceName = ptr.To(byClass)
				class.CreationTimestamp = metav1.NewTime(epoch.AddDate(0, 0, pick(g, -1, 0, 1)))
			}
		}
		c.DeviceClasses = append(c.DeviceClasses, class)
	}
}

// pool adds the slices of a pool. Now and then it is incomplete, invalid, or has old slices.
func (g *generator) pool(c *Case, driver, name string, where func(*resourcev1.ResourceSliceSpec)) {
	count := pick(g, 1, 1, 1, 2)
	counters := g.on[sharedCounters] && g.oneIn(2)
	slicesOf := int64(count)
	if counters {
		slicesOf++
	}
	if g.oneIn(12) {
		slicesOf++ // one is missing
	}
	add := func(part string, generation int64, fill func(*resourcev1.ResourceSliceSpec)) {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: strings.Join([]string{name, driver, part}, "-")}}
		s.Spec = resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: name, Generation: generation, ResourceSliceCount: slicesOf}}
		fill(&s.Spec)
		where(&s.Spec)
		c.Slices = append(c.Slices, s)
	}
	for i := range count {
		add(fmt.Sprint(i), 2, func(s *resourcev1.ResourceSliceSpec) {
			for k := range g.IntN(6) {
				s.Devices = append(s.Devices, g.device(fmt.Sprintf("dev%d", 6*i+k), driver, counters))
			}
			if len(s.Devices) > 0 && g.oneIn(20) {
				s.Devices = append(s.Devices, s.Devices[0]) // the pool is invalid
			}
		})
	}
	if counters {
		add("counters", 2, func(s *resourcev1.ResourceSliceSpec) {
			s.SharedCounters = []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(pick(g, "2", "3", "4"))}}}}
		})
	}
	if g.oneIn(8) {
		add("old", 1, func(s *resourcev1.ResourceSliceSpec) {
			s.Devices = []resourcev1.Device{g.device("old", driver, false)}
		})
	}
}

func (g *generator) device(name, driver string, counters bool) resourcev1.Device {
	d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}}
	if !g.oneIn(10) {
		d.Attributes["size"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(g.IntN(4)))}
	}
	if !g.oneIn(10) {
		d.Attributes["example.com/numa"] = resourcev1.DeviceAttribute{IntValue: ptr.To(int64(g.IntN(2)))}
	}
	if g.oneIn(2) {
		d.Attributes["model"] = resourcev1.DeviceAttribute{StringValue: ptr.To(pick(g, "a", "b"))}
	}
	if g.oneIn(2) {
		d.Attributes["release"] = resourcev1.DeviceAttribute{VersionValue: ptr.To(pick(g, "1.0.0", "2.1.0"))}
	}
	if !g.oneIn(3) {
		d.Capacity["memory"] = resourcev1.DeviceCapacity{Value: resource.MustParse(pick(g, "1Gi", "2Gi", "4Gi"))}
	}
	if g.on[sharedDevices] && g.oneIn(2) {
		d.AllowMultipleAllocations = ptr.To(true)
		memory := resourcev1.DeviceCapacity{Value: resource.MustParse(pick(g, "2Gi", "4Gi"))}
		switch g.IntN(3) {
		case 0:
			memory.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("1Gi")), ValidValues: []resource.Quantity{resource.MustParse("1Gi"), resource.MustParse("2Gi")}}
		case 1:
			memory.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("1Gi")), ValidRange: &resourcev1.CapacityRequestPolicyRange{
				Min: ptr.To(resource.MustParse("1Gi")), Max: ptr.To(resource.MustParse("2Gi")), Step: ptr.To(resource.MustParse("512Mi")),
			}}
		}
		d.Capacity["memory"] = memory
	}
	if g.on[deviceTaints] && g.oneIn(3) {
		d.Taints = []resourcev1.DeviceTaint{{Key: pick(g, "broken", "old"), Value: pick(g, "", "x"), Effect: pick(g, resourcev1.DeviceTaintEffectNone, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute), TimeAdded: ptr.To(metav1.NewTime(epoch))}}
	}
	if g.on[bindingConditions] && g.oneIn(3) {
		d.BindingConditions, d.BindingFailureConditions = []string{"attached"}, []string{"failed"}
		d.BindsToNode = ptr.To(g.oneIn(2))
	}
	if counters && !g.oneIn(4) {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse(pick(g, "1", "2"))}}}}
	}
	return d
}

func (g *generator) deviceClaim(c *Case, name string) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)}}
	var names []string
	for i := range pick(g, 1, 1, 1, 2, 3) {
		r := resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", i)}
		names = append(names, r.Name)
		if g.oneIn(4) {
			for k := range 1 + g.IntN(3) {
				e := g.exactly()
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{
					Name: fmt.Sprintf("s%d", k), DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity,
				})
			}
		} else {
			r.Exactly = g.exactly()
			if g.oneIn(12) {
				r.Exactly.AdminAccess = ptr.To(true)
			}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, r)
	}
	if g.oneIn(4) {
		constraint := resourcev1.DeviceConstraint{}
		attribute := ptr.To(resourcev1.FullyQualifiedName(pick(g, "example.com/numa", gpuDriver+"/model", gpuDriver+"/size")))
		if g.oneIn(2) {
			constraint.Requests = names[:1+g.IntN(len(names))]
		}
		if g.oneIn(2) {
			constraint.MatchAttribute = attribute
		} else {
			constraint.DistinctAttribute = attribute
		}
		claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{constraint}
	}
	if g.oneIn(6) {
		claim.Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{Requests: names[:1], DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: pick(g, gpuDriver, nicDriver)}}}}
	}
	if g.oneIn(4) {
		g.allocate(c, claim)
	}
	if g.oneIn(100) {
		claim.DeletionTimestamp = ptr.To(metav1.NewTime(epoch))
	}
	c.DeviceClaims = append(c.DeviceClaims, claim)
}

func (g *generator) exactly() *resourcev1.ExactDeviceRequest {
	r := &resourcev1.ExactDeviceRequest{DeviceClassName: pick(g, "gpu", "gpu", "gpu", "gpu", "nic", "any", "any", "any", "big"), AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: pick(g, int64(1), 1, 1, 1, 1, 2, 3)}
	if g.oneIn(12) {
		r.AllocationMode, r.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	if g.oneIn(150) {
		r.DeviceClassName = "gone"
	}
	if g.oneIn(3) {
		r.Selectors = expression(pick(g,
			`device.attributes["`+gpuDriver+`"].?size.orValue(0) > 0`,
			`device.attributes["`+gpuDriver+`"].?model.orValue("") == "a"`,
			`"memory" in device.capacity["`+gpuDriver+`"] && device.capacity["`+gpuDriver+`"].memory.compareTo(quantity("2Gi")) >= 0`,
			`device.attributes["example.com"].?numa.orValue(9) == 0`,
			`"release" in device.attributes["`+nicDriver+`"] && device.attributes["`+nicDriver+`"].release.isGreaterThan(semver("1.5.0"))`,
			`device.allowMultipleAllocations == true`,
		))
	}
	if g.oneIn(120) {
		r.Selectors = append(r.Selectors, expression(pick(g, `device.attributes["`+gpuDriver+`"].none == 1`, `device.driver`))...)
	}
	if g.on[deviceTaints] && g.oneIn(2) {
		r.Tolerations = []resourcev1.DeviceToleration{{Key: pick(g, "broken", "old"), Operator: resourcev1.DeviceTolerationOpExists, Effect: pick(g, "", resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNoExecute)}}
		if g.oneIn(2) {
			r.Tolerations[0].Operator, r.Tolerations[0].Value = resourcev1.DeviceTolerationOpEqual, pick(g, "", "x")
		}
	}
	if g.on[sharedDevices] && g.oneIn(2) {
		r.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(pick(g, "512Mi", "1Gi", "1500Mi", "3Gi"))}}
	}
	return r
}

// allocate gives the claim some devices, and the pods that use it.
func (g *generator) allocate(c *Case, claim *resourcev1.ResourceClaim) {
	result := &resourcev1.AllocationResult{AllocationTimestamp: ptr.To(metav1.NewTime(epoch))}
	waiting := false
	for _, r := range claim.Spec.Devices.Requests {
		name := r.Name
		if len(r.FirstAvailable) > 0 {
			name += "/" + r.FirstAvailable[g.IntN(len(r.FirstAvailable))].Name
		}
		slice, device := g.anyDevice(c)
		if device == nil {
			continue
		}
		if node := onlyNode(slice, device); node != "" {
			result.NodeSelector = nodesNamed(node)
		}
		d := resourcev1.DeviceRequestAllocationResult{Request: name, Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: device.Name, BindingConditions: device.BindingConditions, BindingFailureConditions: device.BindingFailureConditions}
		if len(d.BindingConditions) > 0 {
			if waiting {
				// Upstream stops at the first device that is not ready.
				d.BindingConditions, d.BindingFailureConditions = nil, nil
			}
			waiting = true
			result.AllocationTimestamp = nil // upstream's Filter reads the clock
		}
		if r.Exactly != nil {
			d.AdminAccess = r.Exactly.AdminAccess
		}
		if ptr.Deref(device.AllowMultipleAllocations, false) {
			d.ShareID = ptr.To(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", g.IntN(1e9))))
			if !g.oneIn(4) {
				d.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(pick(g, "512Mi", "1Gi", "2Gi"))}
			}
		}
		result.Devices.Results = append(result.Devices.Results, d)
		if len(d.BindingConditions) > 0 && !g.oneIn(3) {
			status := resourcev1.AllocatedDeviceStatus{Driver: d.Driver, Pool: d.Pool, Device: d.Device, ShareID: (*string)(d.ShareID)}
			for _, condition := range []string{"attached", "failed"} {
				if g.oneIn(2) {
					status.Conditions = append(status.Conditions, metav1.Condition{Type: condition, Status: pick(g, metav1.ConditionTrue, metav1.ConditionFalse), Reason: "Some", LastTransitionTime: metav1.NewTime(epoch)})
				}
			}
			claim.Status.Devices = append(claim.Status.Devices, status)
		}
	}
	claim.Status.Allocation = result
	claim.Finalizers = []string{resourcev1.Finalizer}
	for _, user := range pick(g, nil, []string{"p"}, []string{"e0"}, []string{"p", "e0"}) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: user, UID: types.UID(user)})
	}
}

func nodesNamed(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}
}

// onlyNode returns the only node that can use the device; empty if there may be several.
func onlyNode(slice *resourcev1.ResourceSlice, device *resourcev1.Device) string {
	return ptr.Deref(slice.Spec.NodeName, "") + ptr.Deref(device.NodeName, "")
}

func (g *generator) anyDevice(c *Case) (*resourcev1.ResourceSlice, *resourcev1.Device) {
	for range 5 {
		if len(c.Slices) == 0 {
			break
		}
		if s := pick(g, c.Slices...); len(s.Spec.Devices) > 0 {
			return s, &s.Spec.Devices[g.IntN(len(s.Spec.Devices))]
		}
	}
	return nil, nil
}

// taken adds a claim of another pod that has devices.
func (g *generator) taken(c *Case, i int) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: fmt.Sprintf("taken%d", i), UID: types.UID(fmt.Sprintf("taken%d", i))}}
	for k := range 1 + g.IntN(2) {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", k), Exactly: g.exactly()})
	}
	g.allocate(c, claim)
	c.DeviceClaims = append(c.DeviceClaims, claim)
}

// claimDevices makes the pod use claims and extended resources that device classes provide.
func (g *generator) claimDevices(c *Case, p *corev1.Pod) {
	for _, claim := range c.DeviceClaims {
		if claim.Namespace != p.Namespace || g.oneIn(2) {
			continue
		}
		ref := corev1.PodResourceClaim{Name: "as-" + claim.Name, ResourceClaimName: ptr.To(claim.Name)}
		if g.oneIn(3) {
			ref.ResourceClaimName, ref.ResourceClaimTemplateName = nil, ptr.To("template")
			status := corev1.PodResourceClaimStatus{Name: ref.Name, ResourceClaimName: ptr.To(claim.Name)}
			if g.oneIn(12) {
				status.ResourceClaimName = nil // the pod needs none
			}
			if !g.oneIn(60) {
				p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, status)
			}
			if !g.oneIn(60) {
				claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}}
			}
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, ref)
	}
	if g.oneIn(80) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "gone", ResourceClaimName: ptr.To("gone")})
	}
	if !g.on[deviceBacked] {
		return
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, name := range []string{byClass, resourcev1.ResourceDeviceClassPrefix + "nic"} {
				if g.oneIn(2) {
					containers[i].Resources.Requests[corev1.ResourceName(name)] = resource.MustParse(pick(g, "0", "1", "1", "2"))
				}
			}
		}
	}
	for _, n := range c.Nodes { // on some, a device plugin provides the resource
		// Upstream also makes a claim without requests if a pod with claims needs no device here.
		if len(p.Spec.ResourceClaims) == 0 && g.oneIn(4) {
			n.Status.Allocatable[byClass] = resource.MustParse(pick(g, "0", "1", "4"))
			n.Status.Capacity[byClass] = n.Status.Allocatable[byClass]
		}
	}
	if g.oneIn(15) {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: "p-extended-resources-x", UID: "leftover", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: ptr.To(true)}},
		}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "container-0-request-0", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
		if g.oneIn(2) {
			g.allocate(c, claim)
			claim.Status.ReservedFor = nil
		}
		c.DeviceClaims = append(c.DeviceClaims, claim)
	}
}
