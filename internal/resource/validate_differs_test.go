package resource

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// The wanted errors are those of upstream's API server.
func TestNewObjectsAreToldWhatTheComparisonSaw(t *testing.T) {
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}], " + spec + "}\n"
	}
	env := func(from string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, " + from + "}]}\n"
	}
	node := func(rest string) string { return "apiVersion: v1\nkind: Node\n" + rest + "\n" }
	pv := func(source string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + source + "}\n"
	}
	policy := func(spec string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec: {matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, " + spec + "}\n"
	}
	const notFound = `spec.containers[0].volumeMounts[0].name: Not found: "v"`
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a volume that is wrong is not there to be mounted", pod("volumes: [{name: v, secret: {}}]"), []string{"spec.volumes[0].secret.secretName: Required value", notFound}},
		{"an empty directory counts before a path of the host", pod("volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}]"), []string{"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type", notFound}},
		{"a projection of two sources", pod("volumes: [{name: v, projected: {sources: [{secret: {name: a}, configMap: {name: b}}]}}]"), []string{"sources[0]: Forbidden: may not specify more than 1 volume type per source", notFound}},
		{"a disk without a name is a persistent disk", pod("volumes: [{name: v, gcePersistentDisk: {}}]"), []string{"spec.volumes[0].persistentDisk.pdName: Required value", notFound}},
		{"a disk of Azure that lies nowhere", pod("volumes: [{name: v, azureDisk: {diskName: a, diskURI: b}}]"), []string{`azureDisk.diskURI: Unsupported value: "b": supported values: "https://`, notFound}},
		{"a driver is told in its own letters", pod("volumes: [{name: v, csi: {driver: A_}}]"), []string{`csi.driver: Invalid value: "A_": a lowercase RFC 1123 subdomain`, notFound}},
		{"a driver's secret of a wrong name", pod("volumes: [{name: v, csi: {driver: a, nodePublishSecretRef: {name: A_}}}]"), []string{`spec.volumes[0].csi.name: Invalid value: "A_"`, notFound}},
		{"a mount that propagates wrongly", env("volumeMounts: [{name: v, mountPath: /v, mountPropagation: x}]}], volumes: [{name: v, emptyDir: {}}], initContainers: [{name: d, image: i"), []string{`spec.containers[0].volumeMounts.mountPropagation: Unsupported value: "x"`}},
		{"a variable of a secret that cannot be", env("env: [{name: A, valueFrom: {secretKeyRef: {name: A_, key: k}}}]"), []string{`valueFrom.secretKeyRef.name: Invalid value: "A_"`}},
		{"a variable of no ConfigMap", env("env: [{name: A, valueFrom: {configMapKeyRef: {key: k}}}]"), []string{`valueFrom.configMapKeyRef.name: Invalid value: ""`}},
		{"all variables of a ConfigMap that cannot be", env("envFrom: [{configMapRef: {name: A_}}]"), []string{`envFrom[0].configMapRef.name: Invalid value: "A_"`}},
		{"a claim of the pod as a whole that it has not", env("}], resources: {claims: [{name: x}]}, initContainers: [{name: d, image: i"), []string{"spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level", `spec.resources.claims[0]: Not found: "x"`}},
		{"a resource of the pod that there is not", env("}], resources: {requests: {x: 1}}, initContainers: [{name: d, image: i"), []string{`spec.resources.requests[x]: Invalid value: "x": must be a standard resource type or fully qualified`}},
		{"a limit above the pod's", env("resources: {limits: {cpu: 4}}}], resources: {limits: {cpu: 1}}, initContainers: [{name: d, image: i"), []string{`spec.resources.requests: Invalid value: "4": must be less than or equal to cpu limit of 1`, `spec.resources.containers[0][cpu].limits: Invalid value: "4": must be less than or equal to pod limits of 1`}},
		{"an image is pulled with a secret of no name", env("}], imagePullSecrets: [{name: ''}], initContainers: [{name: d, image: i"), nil},
		{"a token without a place to lie", pod("serviceAccountName: a, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {}}]}}]"), []string{"spec.volumes[0].projected.path: Required value", notFound}},
		{"a request of devices whose name cannot be", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nspec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}], constraints: [{matchAttribute: d.example/x, requests: [r/A_]}]}}\n", []string{`requests[0]: Invalid value: "A_": a lowercase RFC 1123 label`, `requests[0]: Invalid value: "r/A_": must be the name of a request in the claim`}},
		{"a template that gives what it makes no finalizers", "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: {metadata: {finalizers: []}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}\n", []string{"spec.metadata.finalizers: Forbidden: cannot be set"}},
		{"two ranges of which one is none", node("spec: {podCIDR: 10.9.0.0/24, podCIDRs: [10.9.0.0/24, b]}"), []string{"spec.podCIDRs[1]: Invalid value", "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]", "spec.podCIDRs: Invalid value"}},
		{"a node with less than nothing", node("status: {capacity: {pods: -1}}"), []string{`status.capacity.pods: Invalid value: "-1"`, `status.allocatable.pods: Invalid value: "-1"`}},
		{"two kinds of volume, of which one is told oddly", pv("csi: {driver: a, volumeHandle: b}, local: {path: /a}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}, cephfs: {monitors: [a]}"), []string{"spec.csi: Forbidden: may not specify more than 1 volume type", "spec.local: Forbidden: may not specify more than 1 volume type"}},
		{"a capacity that volumes of less than nothing have", "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: s\nmaximumVolumeSize: -1\n", nil},
		{"a job's pods whose restart nobody knows", "apiVersion: batch/v1\nkind: Job\nspec: {podFailurePolicy: {rules: []}, selector: {matchLabels: {a: b}}, manualSelector: true, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: x, containers: [{name: c, image: i}]}}}\n", []string{`restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"`, `restartPolicy: Unsupported value: "x": supported values: "OnFailure", "Never"`}},
		{"two claims of one name bring one volume", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}, {metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}\n", nil},
		{"a claim comes in place of a volume of its name", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}], volumes: [{name: d, emptyDir: {}}, {name: e, emptyDir: {}}, {name: e, emptyDir: {}}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}\n", []string{`spec.template.spec.volumes[2].name: Duplicate value: "e"`}},
		{"a policy without variables knows of none", policy("validations: [{expression: variables.v}]"), []string{"undeclared reference to 'variables'"}},
		{"a policy with variables lacks one", policy("variables: [{name: w, expression: '1'}], validations: [{expression: variables.v}]"), []string{"undefined field 'v'"}},
		{"a binding that changes what is being deleted", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nspec: {policyName: p, matchResources: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [DELETE], resources: [b]}]}}\n", []string{`spec.matchResources.resourceRules.operations: Unsupported value: "DELETE"`}},
		{"a webhook's name is wrong in two ways", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nwebhooks: [{name: a.b._, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: 'https://a/b'}}]\n", []string{`webhooks[0].name: Invalid value: "a.b._": a lowercase`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

// Comparing every pair of claims took minutes.
func TestManyClaimsBringTheirVolumes(t *testing.T) {
	const many = 100000
	template := &corev1.PodTemplateSpec{}
	claims := make([]corev1.PersistentVolumeClaim, many)
	for i := range claims {
		claims[i].Name = strconv.Itoa(i)
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: strconv.Itoa(i + 1)})
	}
	if got := withClaims(template, claims).Spec.Volumes; len(got) != many+1 || got[many].Name != strconv.Itoa(many) {
		t.Errorf("got %d volumes, want %d", len(got), many+1)
	}
}

func TestAnnotationsOfAPolicyNeedItsName(t *testing.T) {
	obj, s := read(t, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nspec: {matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, auditAnnotations: [{key: a b, valueExpression: \"'v'\"}]}\n")
	obj.(metav1.Object).SetName("")
	expect(t, s.ValidateCreate(obj), `spec.auditAnnotations[0].key: Invalid value: "a b": requires metadata.name be non-empty`)
}

// states decodes an object's old and new manifest.
func states(t *testing.T, was, is string) (old, obj runtime.Object, s *strategy.Strategy) {
	t.Helper()
	old, s = read(t, was)
	obj, _ = read(t, is)
	return old, obj, s
}

func TestStatusesAreHeldToWhatTheyWere(t *testing.T) {
	job := func(status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	shrunk := func(status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {completionMode: Indexed, completions: 3, parallelism: 3, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	empty := func(status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {suspend: true, completions: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	pod := func(status string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}\nstatus: " + status + "\n"
	}
	const failed = "conditions: [{type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}]"
	const complete = "conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: Complete, status: 'True'}]"
	const begun = "startTime: '2024-01-01T00:00:00Z'"
	cases := []struct {
		name, was, is string
		want          []string
	}{
		{"counts do not go back", job("{succeeded: 2, failed: 2}"), job("{succeeded: 1, failed: 1}"), []string{"status.succeeded: Invalid value: 1: cannot decrease the succeeded counter", "status.failed: Invalid value: 1: cannot decrease the failed counter"}},
		{"what succeeded beyond the indexes of a job that became smaller does not count", shrunk("{succeeded: 2}"), shrunk("{succeeded: 0}"), nil},
		{"a suspended job with nothing to do is complete without having begun", empty("{}"), empty("{completionTime: '2024-01-01T00:00:00Z', " + complete + "}"), nil},
		{"a job has begun when it has begun", job("{" + begun + "}"), job("{}"), []string{"status.startTime: Invalid value: null: field is immutable for unsuspended job once set"}},
		{"a reason to fail stays", job("{conditions: [{type: FailureTarget, status: 'True'}]}"), job("{}"), []string{"status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition"}},
		{"what was reached stays reached", job("{conditions: [{type: SuccessCriteriaMet, status: 'True'}]}"), job("{}"), []string{"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"}},
		{"success and failure exclude each other", job("{" + begun + "}"), job("{" + begun + ", conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}]}"),
			[]string{"cannot set SuccessCriteriaMet=True and Failed=true conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"}},
		{"a finished job has no pods left", job("{" + begun + "}"), job("{" + begun + ", terminating: 1, uncountedTerminatedPods: {failed: [a]}, " + failed + "}"),
			[]string{"status.terminating: Invalid value: 1: terminating>0 is invalid for finished job", "status.uncountedTerminatedPods: Invalid value: {\"failed\":[\"a\"]}: must be empty for finished job"}},
		{"a job is complete at one time", job("{" + begun + ", completionTime: '2024-01-02T00:00:00Z', " + complete + "}"), job("{" + begun + ", completionTime: '2024-01-03T00:00:00Z', " + complete + "}"), []string{"status.completionTime: Invalid value: \"2024-01-03T00:00:00Z\": field is immutable"}},
		{"addresses of a pod of which one is none", pod("{podIPs: [{ip: 10.0.0.1}]}"), pod("{podIPs: [{ip: 10.0.0.1}, {ip: 'a:x'}]}"), []string{"status.podIPs[1]: Invalid value", "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: a:x", "status.podIPs: Invalid value"}},
		{"one address twice", pod("{}"), pod("{hostIP: 10.0.0.1, hostIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.1}]}"), []string{"status.hostIPs: Invalid value"}},
		{"a generation below zero", pod("{}"), pod("{observedGeneration: -1}"), []string{"status.observedGeneration: Invalid value: -1: must be a non-negative integer"}},
		{"a device that nobody asked for", pod("{}"), pod("{containerStatuses: [{name: c, allocatedResourcesStatus: [{name: cpu, resources: [{resourceID: a, health: x}]}, {name: 'claim:x'}]}]}"),
			[]string{`allocatedResourcesStatus[0].name: Invalid value: "cpu": must match one of the container's resource requests`, `allocatedResourcesStatus[0].resources[0].health: Unsupported value: "x"`, `allocatedResourcesStatus[1].name: Invalid value: "claim:x": must match one of the container's resource claims`}},
		{"a user below zero", pod("{}"), pod("{containerStatuses: [{name: c, user: {linux: {uid: -1, gid: 0}}}]}"), []string{"status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, obj, s := states(t, c.was, c.is)
			expect(t, s.ValidateStatus(obj, old), c.want...)
		})
	}
}

func TestUpdatesAreToldWhatTheComparisonSaw(t *testing.T) {
	job := func(grace string, status string) string {
		return "apiVersion: batch/v1\nkind: Job\nspec: {suspend: true, selector: {matchLabels: {a: b}}, manualSelector: true, template: {metadata: {labels: {a: b}}, spec: {terminationGracePeriodSeconds: " + grace + ", restartPolicy: Never, containers: [{name: c, image: i}]}}}\nstatus: " + status + "\n"
	}
	cases := []struct {
		name, was, is string
		want          []string
	}{
		{"the template of a suspended job", job("5", "{}"), job("6", "{}"), []string{"spec.template.spec: Invalid value"}},
		{"the template of a suspended job whose pods still run", job("5", "{active: 1}"), job("6", "{active: 1}"), []string{"spec.template: Invalid value"}},
		{"a node's old name outside of the cluster", "apiVersion: v1\nkind: Node\nspec: {externalID: a}\n", "apiVersion: v1\nkind: Node\nspec: {externalID: b}\n", []string{"spec.externalID: Forbidden: may not be updated"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, obj, s := states(t, c.was, c.is)
			expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}
