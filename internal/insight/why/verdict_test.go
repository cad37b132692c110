package why

import (
	"strings"
	"testing"
)

const (
	unscheduled = "\nstatus: {phase: Pending, conditions: [{type: PodScheduled, status: \"False\", reason: Unschedulable}]}"
	rack        = "{cpu: \"4\", memory: 4Gi, pods: \"110\"}, conditions: [{type: Ready, status: \"True\"}]}"
)

func nodeIn(name, zone, spec string) string {
	return "\n---\nkind: Node\nmetadata: {name: " + name + ", labels: {kubernetes.io/hostname: " + name + ", topology.kubernetes.io/zone: " + zone + "}}\nspec: {" + spec + "}\nstatus: {allocatable: " + rack
}

func pending(spec string) string {
	return "kind: Pod\nmetadata: {name: a, namespace: x, labels: {app: a}}\nspec: {priority: 0, " + spec + "}" + unscheduled
}

// runningOn is a pod on a node that asks for 3 CPU.
func runningOn(name, node, fields string) string {
	return "\n---\nkind: Pod\nmetadata: {name: " + name + ", namespace: x, labels: {app: a}}\nspec: {nodeName: " + node + ", containers: [{name: c, image: app, resources: {requests: {cpu: 3}}}]" + fields + "}\nstatus: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}"
}

const asks2 = "containers: [{name: c, image: app, resources: {requests: {cpu: 2}}}]"

// selecting is a pod that asks for more CPU and memory than any node has.
func selecting(fields string) string {
	return pending(fields + "containers: [{name: c, image: app, resources: {requests: {cpu: 5, memory: 5Gi}}}]")
}

// selected is a node with the label disk=ssd.
func selected(name string) string {
	return strings.Replace(nodeIn(name, "a", ""), "labels: {", "labels: {disk: ssd, ", 1)
}

const deviceObjects = `
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec: {driver: d, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: [{name: g0}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine, namespace: x}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: COUNT}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: taken, namespace: x}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}
status: {allocation: {devices: {results: [{request: one, driver: d, pool: n1, device: g0}]}}}`

const wantsDevice = "resourceClaims: [{name: g, resourceClaimName: mine}], containers: [{name: c, image: app}]"

// Verdicts tell "never" from "not now": an empty node refuses a pod only for reasons that stay.
func TestVerdictsTellNeverFromNotNow(t *testing.T) {
	spread := "topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}}], " + asks2
	volume := "\n---\nkind: PersistentVolumeClaim\nmetadata: {name: d, namespace: x, annotations: {pv.kubernetes.io/bind-completed: \"yes\"}}\nspec: {storageClassName: s, volumeName: v}\nstatus: {phase: Bound}\n---\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {storageClassName: s, claimRef: {namespace: x, name: d}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [b]}]}]}}}"
	for _, test := range []struct {
		name, objects, cause, says, remedy string
		never                              bool
	}{
		{"others use the CPU", pending(asks2) + nodeIn("n1", "a", "") + runningOn("b", "n1", ""), causeCPU, "no node takes it now: too little CPU", "free 1", false},
		{"no node has the CPU", pending("containers: [{name: c, image: app, resources: {requests: {cpu: 5}}}]") + nodeIn("n1", "a", ""), causeCPU, "could ever take it", "Ask for 4 CPU at most", true},
		{"preemption is forbidden", strings.Replace(pending("preemptionPolicy: Never, "+asks2), "priority: 0", "priority: 10", 1) + nodeIn("n1", "a", "") + runningOn("b", "n1", ", priority: 1"), causeCPU, "now", "free", false},
		{"a taint is not tolerated", pending(asks2) + nodeIn("n1", "a", "taints: [{key: gpu, value: only, effect: NoSchedule}]"), causeTaint, "could ever take it", "toleration for gpu", true},
		{"a node is cordoned", pending(asks2) + nodeIn("n1", "a", "unschedulable: true"), causeCordoned, "cordoned", "uncordon", false},
		{"a spread constraint is in the way", pending(spread) + nodeIn("n1", "a", "") + nodeIn("n2", "b", "") + runningOn("b", "n1", "") + runningOn("c", "n2", ""), causeCPU, "now", "free", false},
		{"a zone without room is too empty", pending(spread) + nodeIn("n1", "a", "") + nodeIn("n2", "b", "") + strings.ReplaceAll(runningOn("b", "n2", ""), "{app: a}", "{app: b}") + strings.Replace(runningOn("c", "n1", ""), "cpu: 3", "cpu: 1", 1), causeCPU, "topology spread", "", false},
		{"the volume is in another zone", pending("volumes: [{name: d, persistentVolumeClaim: {claimName: d}}], "+asks2) + nodeIn("n1", "a", "") + volume, causeVolumes, "could ever take it", "where the volume is usable", true},
		{"another pod has the device", pending(wantsDevice) + nodeIn("n1", "a", "") + strings.Replace(deviceObjects, "COUNT", "1", 1), causeDevices, "no node takes it now: no device", "Free devices", false},
		{"no node has as many devices", pending(wantsDevice) + nodeIn("n1", "a", "") + strings.Replace(deviceObjects, "COUNT", "2", 1), causeDevices, "could ever take it", "requests and selectors", true},
		{"an excluded node lacks less than the selected one", selecting("nodeSelector: {disk: ssd}, ") + nodeIn("n1", "a", "") + selected("n2"), causeCPU, "too little CPU (1 of 2 nodes), too little memory (1 of 2 nodes), not selected (1 of 2 nodes)", "Ask for 4 CPU at most", true},
		{"affinity excludes a node", selecting("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}}, ") + nodeIn("n1", "a", "") + selected("n2"), causeCPU, "not selected (1 of 2 nodes)", "Ask for 4 CPU at most", true},
		{"a taint keeps the pod from the node that lacks least", selecting("") + nodeIn("n1", "a", "taints: [{key: gpu, value: only, effect: NoSchedule}]") + nodeIn("n2", "a", ""), causeCPU, "a taint without toleration (1 of 2 nodes)", "Ask for 4 CPU at most", true},
		{"the only selected node has a taint", selecting("nodeSelector: {disk: ssd}, ") + nodeIn("n1", "a", "") + strings.Replace(selected("n2"), "spec: {", "spec: {taints: [{key: gpu, effect: NoSchedule}]", 1), causeTaint, "too little CPU (1 of 2 nodes), too little memory (1 of 2 nodes), not selected (1 of 2 nodes), a taint without toleration (1 of 2 nodes)", "toleration for gpu", true},
		{"no node is selected", selecting("nodeSelector: {disk: ssd}, ") + nodeIn("n1", "a", "") + nodeIn("n2", "a", ""), causeSelector, "too little CPU (2 of 2 nodes), too little memory (2 of 2 nodes), not selected (2 of 2 nodes)", "kubectl label node n1 disk=ssd", true},
		{"a node would take the pod", pending(asks2) + nodeIn("n1", "a", ""), causeFitsNow, "node/n1 would take it now", "Wait", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := ask(t, Ref{"Pod", "x", "a"}, nil, decode(t, test.objects)...)
			if len(a.Roots) == 0 {
				t.Fatal("no root cause")
			}
			r := a.Roots[0]
			if r.Cause != test.cause || !strings.Contains(r.Problem, test.says) || !strings.Contains(r.Remedy, test.remedy) {
				t.Errorf("%s: %s %s; not %s: %s; %s", r.Cause, r.Problem, r.Remedy, test.cause, test.says, test.remedy)
			}
			for _, v := range r.Nodes {
				if v.Never != test.never {
					t.Errorf("never on %s: %t, not %t: %+v", v.Node, v.Never, test.never, v.Refusals)
				}
			}
		})
	}
}

func TestANodeThatDoesNotStartAPodIsNamed(t *testing.T) {
	objects := "kind: Pod\nmetadata: {name: a, namespace: x}\nspec: {nodeName: n1, containers: [{name: c, image: app}]}\nstatus: {phase: Pending, conditions: [{type: PodScheduled, status: \"True\", lastTransitionTime: \"2029-12-31T23:59:00Z\"}]}"
	for node, cause := range map[string]string{readyNode: causeNodeSilent, badNode: causeNotReady} {
		a := ask(t, Ref{"Pod", "x", "a"}, nil, decode(t, objects+node)...)
		if len(a.Roots) == 0 || a.Roots[0].Cause != cause {
			t.Errorf("the root causes are %+v, not %s", a.Roots, cause)
		}
	}
}

func TestAConversionWebhookWithoutAServerIsNamed(t *testing.T) {
	definition := strings.Replace(widgetDefinition, "}\nstatus", ", conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: x, name: hook}}}}}\nstatus", 1)
	a := ask(t, Ref{"CustomResourceDefinition", "", "widgets.example.com"}, nil, decode(t, definition)...)
	if len(a.Findings) == 0 || a.Findings[0].Cause != causeCRDConversion || a.Roots[0].Cause != "service-missing" {
		t.Errorf("%+v", a.Findings)
	}
}

func TestAPluginOfTheSchedulerIsNamed(t *testing.T) {
	plugin := "apiVersion: scheduling.knarr.io/v1alpha1\nkind: SchedulerPlugin\nmetadata: {name: guard}\nspec: {}\nstatus: {conditions: [{type: Working, status: \"False\", reason: Suspended, message: not called}]}"
	for message, cause := range map[string]string{
		"0/1 nodes are available: 1 node(s) had another disk (plugin guard).":    causePluginRefuses,
		"0/1 nodes are available: 1 refused by plugin guard.":                    causePluginRefuses,
		"0/1 nodes are available: 1 plugin guard failed in filter: unreachable.": causePluginFails,
		"0/1 nodes are available: 1 node(s) had a plugin guard.":                 causeFitsNow,
		// This one is gone.
		"0/1 nodes are available: 1 plugin other failed in filter: out of bounds access.": causeFitsNow,
	} {
		objects := strings.Replace(pending(asks2), "reason: Unschedulable", "reason: Unschedulable, message: \""+message+"\"", 1) + nodeIn("n1", "a", "")
		a := ask(t, Ref{"Pod", "x", "a"}, nil, customObjects(t, plugin, objects)...)
		if len(a.Roots) == 0 || a.Roots[0].Cause != cause {
			t.Errorf("%s: the root causes are %+v, not %s", message, a.Roots, cause)
			continue
		}
		if cause != causeFitsNow && (len(a.Roots[0].Evidence) != 1 || !strings.Contains(a.Roots[0].Evidence[0].Text, "Working is False: not called")) {
			t.Errorf("%s: the evidence is %+v", message, a.Roots[0].Evidence)
		}
	}
}
