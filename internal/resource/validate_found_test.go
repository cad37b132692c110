package resource

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// The wanted errors are those of upstream's API server.
func TestWhatTheComparisonFound(t *testing.T) {
	quota := func(spec string) string { return "apiVersion: v1\nkind: ResourceQuota\nspec: " + spec + "\n" }
	event := func(rest string) string { return "apiVersion: v1\nkind: Event\n" + rest + "\n" }
	whole := "eventTime: '2024-01-01T00:00:00.000000Z'\nreportingComponent: a\nreportingInstance: b\naction: c\nreason: d"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"resources of a group count in every scope", quota("{hard: {count/deployments.apps: 1, requests.cpu: 1}, scopes: [NotBestEffort]}"), nil},
		{"each resource outside of a scope is said", quota("{hard: {secrets: 1, services: 1}, scopes: [Terminating]}"), []string{
			`spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`, `spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`}},
		{"a new event may be about another namespace", event("involvedObject: {namespace: other}\n" + whole), nil},
		{"a StatefulSet without containers", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}\n", []string{"spec.template.spec.containers: Required value"}},
		{"a StatefulSet mounts what its claims bring", workload("StatefulSet", ", volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"), nil},
		{"a namespace with a strange finalizer", "apiVersion: v1\nkind: Namespace\nspec: {finalizers: [x]}\n", []string{`spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified`}},
		{"a range that is none is only said to be none", "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nspec: {cidrs: [10.0.0.0/24, a/b]}\n", []string{`spec.cidrs[1]: Invalid value: "a/b": must be a valid CIDR value`}},
		{"the operator is only held against scopes that are known", quota("{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: x, operator: In, values: [a]}]}}"), []string{`spec.scopeSelector.matchExpressions.scopeName: Invalid value: "x": unsupported scope`}},
		{"a padded image stays in a template", "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'i '}]}}\n", nil},
		{"an unknown operating system", "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {os: {name: x}, containers: [{name: c, image: i}]}}\n", []string{`template.spec.os: Unsupported value: "x": supported values: "linux", "windows"`}},
		{"a claim that the pod has not", "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {containers: [{name: c, image: i, resources: {claims: [{name: x}]}}]}}\n", []string{`template.spec.containers[0].resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty`}},
		{"the pods of a StatefulSet have names of their own", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostname: a.b, containers: [{name: c, image: i}]}}}\n", nil},
		{"a topology of nothing", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: p\nallowedTopologies: [{}]\n", []string{`allowedTopologies[0].matchLabelExpressions: Duplicate value: ""`}},
		{"a driver that is asked too often", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nspec: {nodeAllocatableUpdatePeriodSeconds: 5, serviceAccountTokenInSecrets: true}\n", []string{
			"spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified",
			"spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds"}},
		{"a comparison of tolerations, which is off", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: h\nscheduling: {tolerations: [{key: a, operator: Gt, value: '1'}]}\n", []string{`scheduling.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"`}},
		{"an autoscaler to nothing", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {minReplicas: 0, maxReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}\n", []string{
			"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1", "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"}},
		{"a job may restart the containers of its indexes", "apiVersion: batch/v1\nkind: Job\nspec: {completionMode: Indexed, completions: 2, backoffLimitPerIndex: 1, selector: {matchLabels: {a: b}}, manualSelector: true, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

// Legal and illegal statuses of a Job.
func TestAJobEndsInOrder(t *testing.T) {
	cases := []struct {
		name, status string
		want         []string
	}{
		{"complete before its criteria are met", "{startTime: '2024-01-01T00:00:00Z', completionTime: '2024-01-01T00:00:00Z', conditions: [{type: Complete, status: 'True'}]}",
			[]string{"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"}},
		{"failed without a reason before", "{startTime: '2024-01-01T00:00:00Z', conditions: [{type: Failed, status: 'True'}]}",
			[]string{"status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"}},
		{"more ready than active", "{active: 1, ready: 2}", []string{"status.ready: Invalid value: 2: cannot set more ready pods than active"}},
		{"an index that is not", "{completedIndexes: '7'}", []string{`status.completedIndexes: Invalid value: "7": error parsing completedIndexes: too large index: "7"`}},
		{"an index done and failed", "{completedIndexes: '0-1', failedIndexes: '1'}", []string{`status.failedIndexes: Invalid value: "1": failedIndexes and completedIndexes overlap at index: 1`}},
	}
	const job = "apiVersion: batch/v1\nkind: Job\nspec: {completionMode: Indexed, completions: 3, backoffLimitPerIndex: 1}\n"
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, job)
			obj, _ := read(t, job+"status: "+c.status+"\n")
			expect(t, s.ValidateStatus(obj, old), c.want...)
		})
	}
}

func TestPodFieldsOfFeaturesThatAreOffAreDropped(t *testing.T) {
	manifest := "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {schedulingGroup: {podGroupName: g}, containers: [{name: c, image: i, lifecycle: {stopSignal: SIGINT}}]}}\n"
	obj, s := read(t, manifest)
	s.PrepareCreate(obj)
	if spec := podSpecOf(obj); spec.SchedulingGroup != nil || spec.Containers[0].Lifecycle != nil {
		t.Errorf("a new template has %+v, %+v", spec.SchedulingGroup, spec.Containers[0].Lifecycle)
	}
	old, _ := read(t, manifest)
	kept, _ := read(t, manifest)
	s.PrepareUpdate(kept, old)
	if spec := podSpecOf(kept); spec.SchedulingGroup == nil || spec.Containers[0].Lifecycle == nil {
		t.Error("a template that had the fields has lost them")
	}
}

func TestFieldsOfFeaturesThatAreOffAreDropped(t *testing.T) {
	driver := func(set *bool) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: set}}
	}
	s := csiDriverStrategy()
	created := driver(ptr.To(true))
	if s.PrepareCreate(created); created.Spec.PreventPodSchedulingIfMissing != nil {
		t.Error("a new object has the field")
	}
	kept := driver(ptr.To(true))
	if s.PrepareUpdate(kept, driver(ptr.To(false))); kept.Spec.PreventPodSchedulingIfMissing == nil {
		t.Error("an object that had the field has lost it")
	}
}
