package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// generator makes cases. Its values come from small sets, so that pods, nodes and volumes have to
// do with each other. Objects are as the API server stores them: valid and with defaults.
type generator struct {
	*rand.Rand
	// on are the topics of the case. A case about few topics is easier to read.
	on    map[topic]bool
	nodes []string
}

// topic is a group of fields.
type topic int

const (
	resources topic = iota
	extended
	overhead
	initContainers
	podLevel
	resized
	nodeLabels
	preferredNodes
	fieldSelectors
	taints
	ports
	affinity
	antiAffinity
	preferredPods
	hardSpread
	softSpread
	defaultSpread
	volumes
	delayedVolumes
	volumeCounts
	disks
	images
	priorities
	budgets
	nominations
	cordons
	gates
	deviceClaims
	deviceTaints
	sharedDevices
	sharedCounters
	bindingConditions
	deviceBacked
	topics // their number
)

// Generate makes the case with this number. The same seed and number make the same case.
func Generate(seed, number uint64) *Case {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, number)), on: map[topic]bool{}}
	share := g.Float64()
	for t := range topics {
		g.on[t] = g.Float64() < share*0.8
	}
	g.on[gates] = g.on[gates] && g.oneIn(12)
	if g.on[deviceClaims] && !g.oneIn(3) {
		for t := range deviceClaims {
			g.on[t] = g.on[t] && g.oneIn(5) // devices decide most of these cases
		}
	}
	return g.generate()
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) generate() *Case {
	c := &Case{}
	for i := range pick(g, 0, 1, 2, 2, 3, 3, 4, 5, 6, 8) {
		g.nodes = append(g.nodes, fmt.Sprintf("n%d", i))
	}
	for _, name := range g.nodes {
		c.Nodes = append(c.Nodes, g.node(name))
	}
	for i, name := range []string{"a", "b", "c"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		if i > 0 {
			ns.Labels["team"] = pick(g, "x", "y")
		}
		c.Namespaces = append(c.Namespaces, ns)
	}
	if g.on[volumes] || g.on[delayedVolumes] || g.on[volumeCounts] {
		g.storage(c)
	}
	if g.on[deviceClaims] {
		g.dynamicResources(c)
	}
	if g.on[defaultSpread] {
		c.Services = append(c.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": pick(g, apps...)}}})
		c.ReplicaSets = append(c.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "rs"}, Spec: appsv1.ReplicaSetSpec{Selector: g.selector()}})
	}
	if len(g.nodes) > 0 {
		for i := range g.IntN(4 * len(g.nodes)) {
			p := g.placed(c, i)
			freePorts(c, p)
			freeClaims(c, p)
			c.Pods = append(c.Pods, p)
		}
	}
	if g.on[budgets] {
		for i := range 1 + g.IntN(3) {
			c.Budgets = append(c.Budgets, &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: pick(g, "a", "a", "b"), Name: fmt.Sprintf("budget%d", i)},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: g.selector()},
				Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(g.IntN(3))},
			})
		}
	}
	c.Pod = g.pod(c, "p", false)
	if g.on[deviceClaims] {
		g.claimDevices(c, c.Pod)
	}
	g.nominate(c)
	if g.on[gates] {
		c.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	}
	return c
}

// freePorts removes host ports that another pod of the node has: no scheduler would have placed
// both.
func freePorts(c *Case, p *corev1.Pod) {
	taken := map[int32]bool{}
	each := func(p *corev1.Pod, do func(*corev1.ContainerPort)) {
		for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				for j := range containers[i].Ports {
					do(&containers[i].Ports[j])
				}
			}
		}
	}
	for _, other := range c.Pods {
		if other.Spec.NodeName+other.Status.NominatedNodeName == p.Spec.NodeName+p.Status.NominatedNodeName {
			each(other, func(port *corev1.ContainerPort) { taken[port.HostPort] = true })
		}
	}
	each(p, func(port *corev1.ContainerPort) {
		if taken[port.HostPort] {
			port.HostPort = 0
		}
		taken[port.HostPort] = true
	})
}

// freeClaims removes ReadWriteOncePod claims that another pod uses: no scheduler would have placed
// both.
func freeClaims(c *Case, p *corev1.Pod) {
	alone := map[string]bool{} // the names of the claims for one pod
	for _, claim := range c.Claims {
		alone[claim.Namespace+"/"+claim.Name] = claim.Spec.AccessModes[0] == corev1.ReadWriteOncePod
	}
	taken := map[string]bool{}
	for _, other := range c.Pods {
		for i := range other.Spec.Volumes {
			if claim := other.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
				taken[other.Namespace+"/"+claim.ClaimName] = true
			}
		}
	}
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		claim := v.PersistentVolumeClaim
		return claim != nil && alone[p.Namespace+"/"+claim.ClaimName] && taken[p.Namespace+"/"+claim.ClaimName]
	})
}

// nominate gives the pod a nominated node, sometimes one that its victims are leaving. Upstream has
// another reason for a nominated node that PreFilter excludes.
func (g *generator) nominate(c *Case) {
	if !g.on[nominations] || g.on[fieldSelectors] || len(g.nodes) == 0 || g.oneIn(2) {
		return
	}
	c.Pod.Status.NominatedNodeName = pick(g, append(g.nodes, "gone")...)
	for _, p := range c.Pods {
		if p.Spec.NodeName == c.Pod.Status.NominatedNodeName && g.oneIn(3) {
			g.delete(p)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
		}
	}
}

// delete marks the pod as terminating. Upstream's hard spreading does not count such a pod, but
// subtracts it when it is a victim.
func (g *generator) delete(p *corev1.Pod) {
	if g.on[hardSpread] && g.on[priorities] {
		return
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(epoch)), ptr.To[int64](30)
}

// mostPods is more than the pods of a case.
const mostPods = 100

// epoch is a time in the past. Pods start some seconds after it.
var epoch = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// placed makes a bound pod, or one with a nominated node.
func (g *generator) placed(c *Case, i int) *corev1.Pod {
	p := g.pod(c, fmt.Sprintf("e%d", i), true)
	node := pick(g, g.nodes...)
	if g.on[nominations] && g.oneIn(4) {
		p.Status.NominatedNodeName = node
		// Upstream may not count these of a nominated pod.
		p.Spec.Volumes = nil
		if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}
		return p
	}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	// No two pods start at the same time: upstream orders equally important pods at random.
	p.Status.StartTime = ptr.To(metav1.NewTime(epoch.Add(time.Duration(g.IntN(5)*mostPods+i) * time.Second)))
	if g.oneIn(12) {
		g.delete(p)
	}
	if g.on[resized] && g.oneIn(3) {
		g.resize(p)
	}
	return p
}

// resize gives a running pod's containers other resources on the node than in the spec.
func (g *generator) resize(p *corev1.Pod) {
	for i := range p.Spec.Containers {
		container := &p.Spec.Containers[i]
		status := corev1.ContainerStatus{Name: container.Name, AllocatedResources: g.requests()}
		status.Resources = &corev1.ResourceRequirements{Requests: g.requests()}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
	}
	if g.oneIn(2) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: pick(g, corev1.PodReasonInfeasible, corev1.PodReasonDeferred)})
	}
}

var (
	apps  = []string{"web", "db", "job"}
	tiers = []string{"front", "back"}
	zones = []string{"za", "zb", "zc"}
)

func (g *generator) pod(c *Case, name string, placed bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(g, "a", "a", "b", "c"), Name: name, UID: types.UID(name), Labels: map[string]string{}}}
	if !placed {
		p.Namespace = "a"
	}
	p.CreationTimestamp = metav1.NewTime(epoch)
	if !g.oneIn(6) {
		p.Labels["app"] = pick(g, apps...)
	}
	if g.oneIn(2) {
		p.Labels["tier"] = pick(g, tiers...)
	}
	if g.oneIn(3) {
		p.Labels["hash"] = pick(g, "h1", "h2")
	}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	for i := range pick(g, 1, 1, 1, 2, 3) {
		p.Spec.Containers = append(p.Spec.Containers, g.container(fmt.Sprintf("c%d", i)))
	}
	if g.on[initContainers] {
		for i := range g.IntN(4) {
			init := g.container(fmt.Sprintf("i%d", i))
			if g.oneIn(2) {
				init.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, init)
		}
	}
	if g.on[overhead] && g.oneIn(2) {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: g.cpu(), corev1.ResourceMemory: g.memory()}
	}
	if g.on[podLevel] && g.oneIn(2) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
		// The API server fills in what containers request and the pod does not.
		if g.on[resources] || !g.oneIn(4) {
			p.Spec.Resources.Requests[corev1.ResourceCPU] = pick(g, resource.MustParse("3"), resource.MustParse("5"))
		}
		if g.on[resources] || !g.oneIn(4) {
			p.Spec.Resources.Requests[corev1.ResourceMemory] = pick(g, resource.MustParse("3Gi"), resource.MustParse("6Gi"))
		}
	}
	if g.on[priorities] {
		p.Spec.Priority = ptr.To(pick(g, int32(-5), 0, 0, 10, 10, 100))
		if !placed {
			p.Spec.Priority = ptr.To(pick(g, int32(0), 10, 100, 1000))
		}
	} else if g.oneIn(3) {
		p.Spec.Priority = ptr.To[int32](0)
	}
	if g.on[priorities] && g.oneIn(6) {
		p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
	}
	g.place(p)
	if g.on[defaultSpread] && p.Namespace == "a" && g.oneIn(2) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: ptr.To(true)}}
	}
	g.mount(c, p)
	return p
}

func (g *generator) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: pick(g, "web", "web:v1", "example.com/db:2", "example.com/job@sha256:0123456789012345678901234567890123456789012345678901234567890123")}
	c.Resources.Requests = g.requests()
	if g.on[ports] && g.oneIn(2) {
		port := corev1.ContainerPort{ContainerPort: 80, Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP), HostIP: pick(g, "", "", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1")}
		if !g.oneIn(4) {
			port.HostPort = pick(g, int32(8080), 8081)
		}
		c.Ports = append(c.Ports, port)
	}
	return c
}

func (g *generator) cpu() resource.Quantity {
	return resource.MustParse(pick(g, "0", "1m", "100m", "250m", "500m", "1", "1500m", "2"))
}

func (g *generator) memory() resource.Quantity {
	return resource.MustParse(pick(g, "0", "1", "64Mi", "100M", "500Mi", "1Gi", "2Gi"))
}

func (g *generator) requests() corev1.ResourceList {
	out := corev1.ResourceList{}
	if g.on[resources] {
		if !g.oneIn(4) {
			out[corev1.ResourceCPU] = g.cpu()
		}
		if !g.oneIn(4) {
			out[corev1.ResourceMemory] = g.memory()
		}
		if g.oneIn(5) {
			out[corev1.ResourceEphemeralStorage] = resource.MustParse(pick(g, "0", "1Gi", "8Gi"))
		}
	}
	if g.on[extended] && g.oneIn(3) {
		out[corev1.ResourceName(pick(g, "example.com/gpu", "example.com/fpga", "hugepages-2Mi"))] = resource.MustParse(pick(g, "0", "2", "4"))
	}
	return out
}
