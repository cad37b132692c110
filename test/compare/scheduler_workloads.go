package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The wanted ratios.
const (
	ahead    = 5
	farAhead = 10
)

// workloads are those of scheduler_perf (test/integration/scheduler_perf in k8s.io/kubernetes), and
// two more: volumes that the scheduler chooses, and nodes that come and go.
var workloads = []workload{
	{"basic", "pods with requests", ahead, []step{
		createNodes{count: 1000},
		createPods{group: "first", count: 1000, pod: plain},
		createPods{group: "measured", count: 5000, pod: plain, measured: true},
	}},
	{"daemons", "pods that name their node", ahead, []step{
		createNodes{count: 1000},
		createNodes{count: 1, exact: true, prefix: "named", change: bareNode},
		createPods{group: "measured", count: 3000, measured: true,
			pod: with(bare, onNodes(corev1.NodeSelectorTerm{MatchFields: among("metadata.name", "named-0")}))},
	}},
	{"spread", "required spreading over zones", ahead, spreading(spreadBy(corev1.TopologySpreadConstraint{
		MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
	}))},
	{"spread-preferred", "preferred spreading over zones", ahead, spreading(spreadBy(corev1.TopologySpreadConstraint{
		MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
	}))},
	{"spread-default", "default spreading of a Service's pods", ahead, []step{
		createNodes{count: 1000, change: inZones("moon-1", "moon-2", "moon-3")},
		createObjects{objects: func(int) []object { return []object{serviceOf("spread", space, "spread")} }},
		createPods{group: "first", count: 1000, pod: plain},
		createPods{group: "measured", count: 3000, measured: true, pod: with(bare, labelled("app", "spread"))},
	}},
	{"spread-taints", "required spreading over nodes, some with taints", ahead, []step{
		createNodes{count: 800},
		createNodes{count: 200, prefix: "tainted", change: func(_ int, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "compare", Effect: corev1.TaintEffectNoSchedule}}
		}},
		createPods{group: "measured", count: 800, measured: true, pod: spreadBy(honouring())},
	}},
	{"affinity", "required affinity in one zone", farAhead, twoNamespaces(1000, 1000, near("blue", corev1.LabelTopologyZone, ""), near("blue", corev1.LabelTopologyZone, ""))},
	{"affinity-preferred", "preferred affinity to nodes", farAhead, twoNamespaces(1000, 1000, preferNear("red", corev1.LabelHostname, ""), preferNear("red", corev1.LabelHostname, ""))},
	{"anti-affinity", "required anti-affinity on nodes", farAhead, twoNamespaces(200, 600, apart("green", corev1.LabelHostname, ""), apart("green", corev1.LabelHostname, ""))},
	{"anti-affinity-matching", "pods that others' anti-affinity refuses", farAhead, twoNamespaces(200, 1000, apart("green", corev1.LabelHostname, ""), with(plain, labelled("colour", "green")))},
	{"anti-affinity-preferred", "preferred anti-affinity on nodes", farAhead, twoNamespaces(1000, 1000, preferApart("yellow", corev1.LabelHostname, ""), preferApart("yellow", corev1.LabelHostname, ""))},
	{"affinity-selector", "required affinity, namespaces by selector", farAhead, manyNamespaces(1000, 1000, near("blue", corev1.LabelTopologyZone, "ops"))},
	{"affinity-preferred-selector", "preferred affinity, namespaces by selector", farAhead, manyNamespaces(1000, 1000, preferNear("red", corev1.LabelHostname, "ops"))},
	{"anti-affinity-selector", "required anti-affinity, namespaces by selector", farAhead, manyNamespaces(200, 600, apart("green", corev1.LabelHostname, "ops"))},
	{"anti-affinity-preferred-selector", "preferred anti-affinity, namespaces by selector", farAhead, manyNamespaces(1000, 1000, preferApart("green", corev1.LabelHostname, "ops"))},
	{"affinity-mixed", "pods beside pods with all kinds of affinity", farAhead, []step{
		createNodes{count: 1000, change: inZones("zone1")},
		createNamespaces{prefix: "first", count: 1},
		createPods{group: "plain", count: 200, namespace: "first-0", pod: plain},
		createPods{group: "near", count: 200, namespace: "first-0", pod: near("blue", corev1.LabelTopologyZone, "")},
		createPods{group: "apart", count: 200, namespace: "first-0", pod: apart("green", corev1.LabelHostname, "")},
		createPods{group: "prefer-near", count: 200, namespace: "first-0", pod: preferNear("red", corev1.LabelHostname, "")},
		createPods{group: "prefer-apart", count: 200, namespace: "first-0", pod: preferApart("yellow", corev1.LabelHostname, "")},
		createPods{group: "measured", count: 1000, pod: plain, measured: true},
	}},
	{"affinity-gated", "pods beside gated pods with affinity, on one node", farAhead, []step{
		createNodes{count: 1, exact: true, change: bareNode},
		createPods{group: "gated", count: 2000, unbound: true, pod: with(near("blue", corev1.LabelHostname, ownNamespace), gated)},
		untilTried{},
		createPods{group: "measured", count: 4000, measured: true, pod: with(bare, labelled("colour", "blue"))},
	}},
	{"node-affinity", "required node affinity to a zone", ahead, []step{
		createNodes{count: 1000, change: inZones("zone1")},
		createPods{group: "first", count: 1000, pod: inZone},
		createPods{group: "measured", count: 3000, pod: inZone, measured: true},
	}},
	{"preemption", "pods that evict others", ahead, []step{
		importance,
		createNodes{count: 500},
		createPods{group: "low", count: 2000, pod: sized("900m", "500Mi")},
		createPods{group: "measured", count: 500, measured: true, pod: with(sized("3", "500Mi"), important)},
	}},
	{"preemption-beside", "pods beside pods that evict others", ahead, []step{
		importance,
		createNodes{count: 500},
		createPods{group: "low", count: 2000, pod: sized("900m", "500Mi")},
		churn{every: 200 * time.Millisecond, objects: churningPods(with(sized("3", "500Mi"), important))},
		createPods{group: "measured", count: 1500, pod: plain, measured: true},
	}},
	{"preemption-volumes", "pods with volumes that evict others", ahead, []step{
		importance,
		createNodes{count: 500},
		createPods{group: "low", count: 2000, pod: sized("900m", "500Mi")},
		createPods{group: "measured", count: 500, measured: true, volume: inTreeVolume, pod: with(sized("3", "500Mi"), important, withClaim)},
	}},
	{"unschedulable", "pods beside pods that fit nowhere", ahead, []step{
		importance,
		createNodes{count: 1000},
		createPods{group: "first", count: 20, pod: plain},
		churn{every: 200 * time.Millisecond, objects: churningPods(with(sized("9", "500Mi"), important))},
		createPods{group: "measured", count: 3000, pod: plain, measured: true},
	}},
	{"churn", "pods beside changing nodes, pods and Services", ahead, []step{
		importance,
		createNodes{count: 1000},
		churn{every: time.Second, replaced: true, objects: func(i int) []object {
			pod := churningPods(with(sized("9", "500Mi"), important))
			return append(pod(i), churningNode(i), serviceOf(fmt.Sprintf("churn-%d", i), space, "churn"))
		}},
		createPods{group: "measured", count: 3000, pod: plain, measured: true},
	}},
	{"churn-nodes", "pods beside nodes that come and go", ahead, []step{
		createNodes{count: 1000},
		churn{every: 50 * time.Millisecond, replaced: true, objects: func(i int) []object { return []object{churningNode(i)} }},
		createPods{group: "measured", count: 3000, pod: plain, measured: true},
	}},
	{"gates", "pods beside gated pods and deletions, on one node", ahead, []step{
		createNodes{count: 1, exact: true, change: bareNode},
		createPods{group: "gated", count: 2000, unbound: true, pod: with(bare, gated)},
		untilTried{},
		createPods{group: "deleted", count: 4000, pod: bare},
		deletePods{group: "deleted", perSecond: 50},
		createPods{group: "measured", count: 4000, pod: bare, measured: true},
	}},
	{"finalizers", "pods beside deleted pods with finalizers", ahead, []step{
		createNodes{count: 1000},
		createPods{group: "deleted", count: 1000, unbound: true, pod: with(bare, finalized)},
		deletePods{group: "deleted", perSecond: 100},
		createPods{group: "measured", count: 3000, pod: bare, measured: true},
	}},
	{"extended-resource", "pods with an extended resource", ahead, []step{
		createNodes{count: 1000, change: provides("compare.example/thing", "1")},
		createPods{group: "measured", count: 1000, measured: true, pod: with(bare, wants("compare.example/thing", "1"))},
	}},
	{"secrets", "pods with a Secret as volume", ahead, []step{
		createNodes{count: 1000},
		createPods{group: "first", count: 1000, pod: with(plain, withSecret)},
		createPods{group: "measured", count: 3000, measured: true, pod: with(plain, withSecret)},
	}},
	{"volumes-in-tree", "pods with bound volumes of an in-tree plugin", ahead, withVolumes(createNodes{count: 1000}, inTreeVolume)},
	{"volumes-migrated", "the same, replaced by a CSI driver with a limit", ahead, withVolumes(createNodes{
		count: 1000, change: provides("attachable-volumes-csi-"+ebsDriver, "39"),
		also: csiNode(map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": ebsInTree}),
	}, inTreeVolume)},
	{"volumes-csi", "pods with bound volumes of a CSI driver with a limit", ahead, withVolumes(createNodes{
		count: 1000, change: provides("attachable-volumes-csi-"+ebsDriver, "39"), also: csiNode(nil),
	}, csiVolume)},
	{"volumes-waiting", "pods whose volumes the scheduler chooses", ahead, []step{
		createObjects{objects: storageClass},
		createNodes{count: 500, also: localVolume},
		createPods{group: "measured", count: 400, measured: true, volume: waitingClaim, pod: with(plain, withClaim)},
	}},
	{"devices-templates", "pods with a claim of their own for a device", ahead, []step{
		createObjects{objects: deviceClass},
		createObjects{objects: claimTemplate},
		createNodes{count: 200, also: slice},
		createPods{group: "first", count: 500, pod: with(bare, ownDevice)},
		createPods{group: "measured", count: 1000, measured: true, pod: with(bare, ownDevice)},
	}},
	{"devices-claims", "pods that share claims for devices", ahead, []step{
		createObjects{objects: deviceClass},
		createNodes{count: 200, also: slice},
		createObjects{count: 200, objects: sharedClaims("first")},
		createPods{group: "first", count: 1000, pod: with(bare, usesShared("first"))},
		createObjects{count: 200, objects: sharedClaims("measured")},
		createPods{group: "measured", count: 1000, measured: true, pod: with(bare, usesShared("measured"))},
	}},
	{"node-added", "pods that wait for nodes", ahead, []step{
		createNodes{count: 1, exact: true, prefix: "full", change: provides(corev1.ResourcePods, "0")},
		createPods{group: "waiting", count: 1000, unbound: true, pod: plain},
		untilTried{},
		unblock{group: "waiting", nodes: createNodes{count: 100}},
	}},
}

func spreading(pod func(i int, p *corev1.Pod)) []step {
	return []step{
		createNodes{count: 1000, change: inZones("moon-1", "moon-2", "moon-3")},
		createPods{group: "first", count: 1000, pod: plain},
		createPods{group: "measured", count: 3000, pod: pod, measured: true},
	}
}

func honouring() corev1.TopologySpreadConstraint {
	honour := corev1.NodeInclusionPolicyHonor
	return corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, NodeAffinityPolicy: &honour, NodeTaintsPolicy: &honour,
	}
}

// twoNamespaces puts the first pods and the measured ones into different namespaces.
func twoNamespaces(first, measured int, pod, other func(i int, p *corev1.Pod)) []step {
	return []step{
		createNodes{count: 1000, change: inZones("zone1")},
		createNamespaces{prefix: "first", count: 1},
		createNamespaces{prefix: "second", count: 1},
		createPods{group: "first", count: first, namespace: "first-0", pod: pod},
		createPods{group: "measured", count: measured, namespace: "second-0", pod: other, measured: true},
	}
}

// manyNamespaces puts the first pods into twenty namespaces of a team.
func manyNamespaces(first, measured int, pod func(i int, p *corev1.Pod)) []step {
	team := map[string]string{"team": "ops"}
	return []step{
		createNodes{count: 1000, change: inZones("zone1")},
		createNamespaces{prefix: "first", count: 20, labels: team},
		createNamespaces{prefix: "second", count: 1, labels: team},
		createPods{group: "first", count: first, namespace: "first", several: 20, pod: pod},
		createPods{group: "measured", count: measured, namespace: "second-0", pod: pod, measured: true},
	}
}

func withVolumes(nodes createNodes, volume func(i int, p *corev1.Pod) []object) []step {
	return []step{
		nodes,
		createPods{group: "first", count: 500, volume: volume, pod: with(plain, withClaim)},
		createPods{group: "measured", count: 1000, measured: true, volume: volume, pod: with(plain, withClaim)},
	}
}

var inZone = with(plain, onNodes(corev1.NodeSelectorTerm{MatchExpressions: among(corev1.LabelTopologyZone, "zone1", "zone2")}))

func ownDevice(i int, p *corev1.Pod) {
	template := "one"
	usesDevice(corev1.PodResourceClaim{ResourceClaimTemplateName: &template})(i, p)
}

func churningPods(pod func(i int, p *corev1.Pod)) func(i int) []object {
	return func(i int) []object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("churn-%d", i), Namespace: space}}
		pod(i, p)
		return []object{{podsPath, p}}
	}
}

// churningNode has no room for pods.
func churningNode(i int) object {
	n := hollowNode(fmt.Sprintf("churn-%d", i))
	provides(corev1.ResourcePods, "0")(i, n)
	return object{"/api/v1/nodes", n}
}
