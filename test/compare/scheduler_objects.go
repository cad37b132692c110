package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// object is an object with the path of its collection.
type object struct {
	path string
	obj  interface {
		runtime.Object
		metav1.Object
	}
}

// postAll creates objects in protobuf.
func (w *wire) postAll(objects []object) error {
	for _, o := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(o.obj)
		if err != nil {
			return err
		}
		if err := w.createAs(o.path, o.obj, kinds[0]); err != nil {
			return fmt.Errorf("%s: %w", o.obj.GetName(), err)
		}
	}
	return nil
}

// remove deletes an object at once.
func (w *wire) remove(o object) error {
	_, err := w.do("DELETE", o.path+"/"+o.obj.GetName()+"?gracePeriodSeconds=0", "", protobufType, nil)
	return err
}

func podsOf(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// hollowNode is a node without an agent, of the size that scheduler_perf uses.
func hollowNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: quantity("4"), corev1.ResourceMemory: quantity("32Gi"), corev1.ResourcePods: quantity("110")}
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Hollow", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	return n
}

// inZones gives the nodes zones in turn.
func inZones(zones ...string) func(i int, n *corev1.Node) {
	return func(i int, n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zones[i%len(zones)] }
}

// provides adds a resource to a node.
func provides(name corev1.ResourceName, amount string) func(i int, n *corev1.Node) {
	return func(_ int, n *corev1.Node) {
		n.Status.Capacity[name], n.Status.Allocatable[name] = quantity(amount), quantity(amount)
	}
}

// bareNode has room for any number of pods without requests.
func bareNode(_ int, n *corev1.Node) { provides(corev1.ResourcePods, "90000")(0, n) }

// The pods of the workloads. Each function completes a pod with a name.

func sized(cpu, memory string) func(i int, p *corev1.Pod) {
	requests := corev1.ResourceList{corev1.ResourceCPU: quantity(cpu), corev1.ResourceMemory: quantity(memory)}
	return func(_ int, p *corev1.Pod) {
		bare(0, p)
		c := &p.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		c.Resources = corev1.ResourceRequirements{Requests: requests, Limits: requests}
	}
}

// bare is a pod without requests.
func bare(_ int, p *corev1.Pod) {
	no, now := false, int64(0)
	p.Spec.AutomountServiceAccountToken, p.Spec.TerminationGracePeriodSeconds = &no, &now
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10.2"}}
}

var plain = sized("100m", "500Mi")

// with joins changes of a pod.
func with(changes ...func(i int, p *corev1.Pod)) func(i int, p *corev1.Pod) {
	return func(i int, p *corev1.Pod) {
		for _, change := range changes {
			change(i, p)
		}
	}
}

func labelled(key, value string) func(i int, p *corev1.Pod) {
	return func(_ int, p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

func selects(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// ownNamespace takes the place of a team in a term for the pod's own namespace.
const ownNamespace = "own"

// term selects pods with a colour in the two namespaces of a workload, or, with a team, in the
// namespaces of that team.
func term(colour, topology, team string) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{LabelSelector: selects("colour", colour), TopologyKey: topology}
	switch team {
	case ownNamespace:
	case "":
		t.Namespaces = []string{"first-0", "second-0"}
	default:
		t.NamespaceSelector = selects("team", team)
	}
	return t
}

func weighted(t corev1.PodAffinityTerm) []corev1.WeightedPodAffinityTerm {
	return []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: t}}
}

// near, preferNear, apart and preferApart are pods with one affinity term to pods of the same
// colour.
func near(colour, topology, team string) func(i int, p *corev1.Pod) {
	return with(plain, labelled("colour", colour), func(_ int, p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(colour, topology, team)}}}
	})
}

func preferNear(colour, topology, team string) func(i int, p *corev1.Pod) {
	return with(plain, labelled("colour", colour), func(_ int, p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted(term(colour, topology, team))}}
	})
}

func apart(colour, topology, team string) func(i int, p *corev1.Pod) {
	return with(plain, labelled("colour", colour), func(_ int, p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term(colour, topology, team)}}}
	})
}

func preferApart(colour, topology, team string) func(i int, p *corev1.Pod) {
	return with(plain, labelled("colour", colour), func(_ int, p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted(term(colour, topology, team))}}
	})
}

// onNodes requires nodes by a label, or by the field metadata.name.
func onNodes(required corev1.NodeSelectorTerm) func(i int, p *corev1.Pod) {
	return func(_ int, p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{required}}}}
	}
}

func among(key string, values ...string) []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}
}

// spreadBy distributes the pods of one colour.
func spreadBy(c corev1.TopologySpreadConstraint) func(i int, p *corev1.Pod) {
	c.LabelSelector = selects("colour", "blue")
	return with(plain, labelled("colour", "blue"), func(_ int, p *corev1.Pod) { p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{c} })
}

func gated(_ int, p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "compare.example/hold"}}
}

func finalized(_ int, p *corev1.Pod) { p.Finalizers = []string{"compare.example/finalizer"} }

func important(_ int, p *corev1.Pod) { p.Spec.PriorityClassName = "important" }

func withSecret(_ int, p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}}}
}

func withClaim(_ int, p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name}}}}
}

// wants adds an extended resource to the first container.
func wants(name corev1.ResourceName, amount string) func(i int, p *corev1.Pod) {
	return func(_ int, p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		both := corev1.ResourceList{}
		for key, value := range c.Resources.Requests {
			both[key] = value
		}
		both[name] = quantity(amount)
		c.Resources = corev1.ResourceRequirements{Requests: both, Limits: both}
	}
}

// importance makes the priority class of important pods.
var importance = createObjects{objects: func(int) []object {
	return []object{{"/apis/scheduling.k8s.io/v1/priorityclasses", &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "important"}, Value: 10}}}
}}

func serviceOf(name, namespace, app string) object {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	s.Spec.Selector = map[string]string{"app": app}
	s.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8000)}}
	return object{"/api/v1/namespaces/" + namespace + "/services", s}
}

// volume makes a volume and a claim that belong together. The source may differ, and wait leaves
// the choice to the scheduler.
func volume(p *corev1.Pod, source corev1.PersistentVolumeSource) []object {
	name, none := p.Name, ""
	size := corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, PersistentVolumeSource: source,
		ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: p.Namespace, Name: name},
	}}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, VolumeName: name, StorageClassName: &none, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	return []object{{volumesPath, pv}, {claimsOf(p.Namespace), pvc}}
}

const volumesPath = "/api/v1/persistentvolumes"

func claimsOf(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/persistentvolumeclaims"
}

// The names of a CSI driver and of the plugin that it replaces.
const (
	ebsDriver = "ebs.csi.aws.com"
	ebsInTree = "kubernetes.io/aws-ebs"
)

func csiVolume(_ int, p *corev1.Pod) []object {
	return volume(p, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: "vol-" + p.Name}})
}

func inTreeVolume(_ int, p *corev1.Pod) []object {
	return volume(p, corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-" + p.Name}})
}

// csiNode allows 39 volumes on a node, as scheduler_perf does.
func csiNode(annotations map[string]string) func(i int, node string) []object {
	most := int32(39)
	return func(_ int, node string) []object {
		return []object{{"/apis/storage.k8s.io/v1/csinodes", &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: annotations},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: ebsDriver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &most}}}},
		}}}
	}
}

// waitingClass is a storage class whose volumes are chosen when a pod is scheduled.
const waitingClass = "waiting"

func storageClass(int) []object {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	return []object{{"/apis/storage.k8s.io/v1/storageclasses", &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: waitingClass}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &mode,
	}}}
}

// localVolume is a volume on one node.
func localVolume(_ int, node string) []object {
	return []object{{volumesPath, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "local-" + node}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: waitingClass,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt"}},
		NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: among(corev1.LabelHostname, node)}}}},
	}}}}
}

// waitingClaim is a claim whose volume the scheduler chooses.
func waitingClaim(_ int, p *corev1.Pod) []object {
	class := waitingClass
	return []object{{claimsOf(p.Namespace), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}},
	}}}}
}

// Devices of dynamic resource allocation.
const (
	deviceDriver = "compare.example"
	resourcePath = "/apis/resource.k8s.io/v1/"
)

// slice publishes ten devices of a node.
func slice(_ int, node string) []object {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-compare"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: deviceDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range 10 {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	return []object{{resourcePath + "resourceslices", s}}
}

func deviceClass(int) []object {
	return []object{{resourcePath + "deviceclasses", &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "compare"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + deviceDriver + `"`}}},
	}}}}
}

func oneDevice() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "compare"}}}}}
}

func claimTemplate(int) []object {
	return []object{{resourcePath + "namespaces/" + space + "/resourceclaimtemplates", &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: space}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: oneDevice()},
	}}}
}

// sharedClaims makes claims of a prefix. Five pods share a claim.
func sharedClaims(prefix string) func(i int) []object {
	return func(i int) []object {
		return []object{{resourcePath + "namespaces/" + space + "/resourceclaims", &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i), Namespace: space}, Spec: oneDevice(),
		}}}
	}
}

func usesDevice(source corev1.PodResourceClaim) func(i int, p *corev1.Pod) {
	source.Name = "device"
	return func(_ int, p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{source}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: source.Name}}
	}
}

func usesShared(prefix string) func(i int, p *corev1.Pod) {
	return func(i int, p *corev1.Pod) {
		name := fmt.Sprintf("%s-%d", prefix, i/5)
		usesDevice(corev1.PodResourceClaim{ResourceClaimName: &name})(i, p)
	}
}
