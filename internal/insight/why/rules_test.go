package why

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
)

// decode reads objects from YAML, separated by lines of three hyphens.
func decode(t *testing.T, text string) (out []runtime.Object) {
	t.Helper()
	for _, part := range strings.Split(text, "\n---\n") {
		if !strings.HasPrefix(strings.TrimSpace(part), "apiVersion") {
			part = "apiVersion: v1\n" + strings.TrimSpace(part)
		}
		o, _, err := api.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
		if err != nil {
			t.Fatalf("%v in %s", err, part)
		}
		out = append(out, o)
	}
	return out
}

const readyNode = "\n---\nkind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: \"True\"}]}"

const badNode = "\n---\nkind: Node\nmetadata: {name: n1}\nstatus: {conditions: [{type: Ready, status: \"False\", message: runtime is down}]}"

// container is a pod on a node whose container has this state.
func container(state string) string {
	return "kind: Pod\nmetadata: {name: a, namespace: x}\nspec: {nodeName: n1, restartPolicy: Always, containers: [{name: c, image: app}]}\n" +
		"status: {phase: Running, conditions: [{type: PodScheduled, status: \"True\"}], containerStatuses: [{name: c, image: app, restartCount: 2, " + state + "}]}" + readyNode
}

// mountEvent is a pod that waits, with an event.
func mountEvent(reason, message string) string {
	return "kind: Pod\nmetadata: {name: a, namespace: x}\nspec: {nodeName: n1, containers: [{name: c, image: app}]}\nstatus: {phase: Pending}" + readyNode +
		"\n---\nkind: Event\nmetadata: {name: e, namespace: x}\ninvolvedObject: {kind: Pod, name: a, namespace: x}\nreason: " + reason + "\nmessage: '" + message + "'"
}

// containerEvent is an event of container's container.
func containerEvent(reason, at string) string {
	return "\n---\nkind: Event\nmetadata: {name: e, namespace: x}\ninvolvedObject: {kind: Pod, name: a, namespace: x, fieldPath: 'spec.containers{c}'}\nreason: " + reason + "\nlastTimestamp: \"" + at + "\""
}

const noCommand = `failed to create containerd task: OCI runtime create failed: error during container init: exec: "/bin/nope": stat /bin/nope: no such file or directory`

// rejected is a ReplicaSet whose pods are rejected with a message.
func rejected(message string) string {
	return "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: a, namespace: x}\nspec: {replicas: 1}\n" +
		"status: {replicas: 0, conditions: [{type: ReplicaFailure, status: \"True\", message: '" + message + "'}]}"
}

func autoscalerWith(condition string) string {
	return "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a, namespace: x}\nspec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: d}}\nstatus: {conditions: [" + condition + "]}"
}

func cronEvent(reason string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a, namespace: x}\nspec: {schedule: '* * * * *'}\n---\nkind: Event\nmetadata: {name: e, namespace: x}\n" +
		"involvedObject: {kind: CronJob, name: a, namespace: x}\nreason: " + reason
}

func jobFailed(reason string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: x}\nstatus: {failed: 7, conditions: [{type: Failed, status: \"True\", reason: " + reason + "}]}"
}

func TestRulesFindTheirCauses(t *testing.T) {
	for _, test := range []struct{ name, subject, cause, objects string }{
		{"a container is killed", "Pod x/a", causeKilled, container("state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: Error}}")},
		{"a container was out of memory and runs again", "Pod x/a", causeOOM, container("ready: true, state: {running: {}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled, finishedAt: \"2029-12-31T23:59:00Z\"}}")},
		{"a container cannot be created", "Pod x/a", causeStart, container("state: {waiting: {reason: CreateContainerError, message: odd}}")},
		{"a command may not be executed", "Pod x/a", causePermission, container("state: {waiting: {reason: RunContainerError, message: 'exec: permission denied'}}")},
		{"a container without a probe is not ready", "Pod x/a", causeNotReadyYet, container("ready: false, started: true, state: {running: {}}")},
		{"an image cannot be pulled for an unknown reason", "Pod x/a", causeImagePull, container("state: {waiting: {reason: ErrImagePull, message: odd}}")},
		{"a pull takes long", "Pod x/a", causeImageSlow, container("state: {waiting: {reason: ContainerCreating}}") + containerEvent("Pulling", "2029-12-31T23:59:00Z")},
		{"a command is not in the image, at the first start", "Pod x/a", causeCommand, container("state: {waiting: {reason: RunContainerError, message: '" + noCommand + "'}}")},
		{"a command is not in the image, at later starts", "Pod x/a", causeCommand, container("state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 128, reason: StartError, message: '" + noCommand + "'}}")},
		{"a registry limits pulls", "Pod x/a", causeRegistryLimit, container("state: {waiting: {reason: ErrImagePull, message: 'toomanyrequests: slow down'}}")},
		{"a registry's certificate is not trusted", "Pod x/a", causeRegistryCert, container("state: {waiting: {reason: ErrImagePull, message: 'x509: certificate signed by unknown authority'}}")},
		{"a pod on a node that is not ready", "Pod x/a", causeNotReady, "kind: Pod\nmetadata: {name: a, namespace: x}\nspec: {nodeName: n1, containers: [{name: c, image: app}]}\nstatus: {phase: Pending, containerStatuses: [{name: c, image: app, state: {waiting: {reason: ContainerCreating}}}]}" + badNode},
		{"a pod ran too long", "Pod x/a", causeDeadline, "kind: Pod\nmetadata: {name: a, namespace: x}\nstatus: {phase: Failed, reason: DeadlineExceeded}"},
		{"a volume cannot be mounted", "Pod x/a", causeMount, mountEvent("FailedMount", "timed out")},
		{"a volume cannot be attached", "Pod x/a", causeAttach, mountEvent("FailedAttachVolume", "no such disk")},
		{"a volume's driver is not on the node", "Pod x/a", causeVolumeDriver, mountEvent("FailedMount", "driver name d not found in the list of registered CSI drivers")},
		{"a file system is read-only", "Pod x/a", causeReadOnly, mountEvent("FailedMount", "mkdir /x: read-only file system")},
		{"preemption makes room", "Pod x/a", causePreempts, "kind: Pod\nmetadata: {name: a, namespace: x}\nstatus: {phase: Pending, nominatedNodeName: n1}" + readyNode},
		{"the scheduler is silent", "Pod x/a", causeSilent, "kind: Pod\nmetadata: {name: a, namespace: x}\nspec: {schedulerName: default-scheduler}\nstatus: {phase: Pending}" + readyNode},
		{"a claim lost its volume", "PersistentVolumeClaim x/a", causeClaimLost, "kind: PersistentVolumeClaim\nmetadata: {name: a, namespace: x}\nstatus: {phase: Lost}"},
		{"a claim cannot grow", "PersistentVolumeClaim x/a", causeClaimResize, "kind: PersistentVolumeClaim\nmetadata: {name: a, namespace: x}\nstatus: {phase: Bound, conditions: [{type: ControllerResizeError, status: \"True\"}]}"},
		{"a provisioner has not answered", "PersistentVolumeClaim x/a", causeClaimProvisions, "kind: PersistentVolumeClaim\nmetadata: {name: a, namespace: x}\nspec: {storageClassName: s}\nstatus: {phase: Pending}\n---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\nprovisioner: p\n---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: p}"},
		{"a volume cannot be reclaimed", "PersistentVolume /a", causeVolumeFailed, "kind: PersistentVolume\nmetadata: {name: a}\nstatus: {phase: Failed}"},
		{"no node offers devices", "ResourceClaim x/a", causeNoDevices, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: a, namespace: x}"},
		{"a priority class is missing", "ReplicaSet x/a", "priorityclass-missing", rejected(`pods "a" is forbidden: no PriorityClass with name urgent was found`)},
		{"a webhook denies", "ReplicaSet x/a", causeWebhookDenies, rejected(`admission webhook "w.example.com" denied the request: no`)},
		{"a webhook cannot be called", "ReplicaSet x/a", causeWebhookFails, rejected(`Internal error occurred: failed calling webhook "w.example.com": timeout`)},
		{"a template is not valid", "ReplicaSet x/a", causeTemplate, rejected(`Pod "a" is invalid: spec.containers: Required value`)},
		{"a rejection is unknown", "ReplicaSet x/a", causeRejected, rejected(`odd`)},
		{"an autoscaler's pods have no requests", "HorizontalPodAutoscaler x/a", causeScaleRequests, autoscalerWith("{type: ScalingActive, status: \"False\", reason: FailedGetResourceMetric, message: missing request for cpu}")},
		{"an autoscaler gets no metrics", "HorizontalPodAutoscaler x/a", "apiservice-missing", autoscalerWith("{type: ScalingActive, status: \"False\", reason: FailedGetResourceMetric, message: no metrics}")},
		{"an autoscaler's target is scaled to 0", "HorizontalPodAutoscaler x/a", causeScaleDisabled, autoscalerWith("{type: ScalingActive, status: \"False\", reason: ScalingDisabled}")},
		{"two autoscalers have the same pods", "HorizontalPodAutoscaler x/a", causeScaleSelectors, autoscalerWith("{type: ScalingActive, status: \"False\", reason: AmbiguousSelector}")},
		{"an autoscaler is at its maximum", "HorizontalPodAutoscaler x/a", causeScaleMaximum, autoscalerWith("{type: ScalingLimited, status: \"True\", reason: TooManyReplicas}")},
		{"a CronJob forbids overlap", "CronJob x/a", causeCronForbid, cronEvent("JobAlreadyActive")},
		{"a CronJob missed runs", "CronJob x/a", causeCronMissed, cronEvent("TooManyMissedTimes")},
		{"a CronJob's time zone is unknown", "CronJob x/a", causeCronZone, cronEvent("UnknownTimeZone")},
		{"a CronJob's schedule is not valid", "CronJob x/a", causeCronSchedule, cronEvent("UnparseableSchedule")},
		{"a CronJob's run is late", "CronJob x/a", causeCronLate, "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a, namespace: x, creationTimestamp: \"2029-12-31T12:00:00Z\"}\nspec: {schedule: '0 * * * *', timeZone: Europe/Oslo}\nstatus: {lastScheduleTime: \"2029-12-31T21:00:00Z\"}"},
		{"the controllers behind a late CronJob are gone", "CronJob x/a", causeLease, "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a, namespace: x, creationTimestamp: \"2029-12-31T12:00:00Z\"}\nspec: {schedule: '0 * * * *'}\n---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: kube-controller-manager, namespace: kube-system}\nspec: {holderIdentity: m, leaseDurationSeconds: 15, renewTime: \"2029-12-31T20:00:00.000000Z\"}"},
		{"a Job's pods failed too often", "Job x/a", causeJobBackoff, jobFailed("BackoffLimitExceeded")},
		{"a Job's policy ends it", "Job x/a", causeJobPolicy, jobFailed("PodFailurePolicy")},
		{"a definition's schema is not structural", "CustomResourceDefinition /a", causeCRDSchema, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\nstatus: {conditions: [{type: Established, status: \"True\"}, {type: NonStructuralSchema, status: \"True\"}]}"},
		{"a definition is not established", "CustomResourceDefinition /a", causeCRDPending, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}"},
		{"a webhook's CA is no certificate", "ValidatingWebhookConfiguration /a", causeWebhookCA, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\nwebhooks: [{name: w, clientConfig: {url: 'https://h', caBundle: eA==}}]"},
		{"a signer failed", "CertificateSigningRequest /a", causeCSRFailed, "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: a}\nstatus: {conditions: [{type: Failed, status: \"True\"}]}"},
		{"two budgets have the same pods", "PodDisruptionBudget x/a", causePDBOverlap, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a, namespace: x}\nspec: {selector: {}}\n---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b, namespace: x}\nspec: {selector: {}}\n---\nkind: Pod\nmetadata: {name: a, namespace: x}"},
		{"a quota is used up", "ResourceQuota x/a", causeQuotaFull, "kind: ResourceQuota\nmetadata: {name: a, namespace: x}\nstatus: {hard: {pods: 1}, used: {pods: 1}}"},
		{"an Ingress has no class", "Ingress x/a", causeIngressNoClass, "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: x}"},
		{"dependents keep an object", "ConfigMap x/a", causeDependents, "kind: ConfigMap\nmetadata: {name: a, namespace: x, deletionTimestamp: \"2029-12-31T00:00:00Z\", finalizers: [foregroundDeletion]}"},
		{"a claim keeps its volume", "PersistentVolume /a", causeVolumeInUse, "kind: PersistentVolume\nmetadata: {name: a, deletionTimestamp: \"2029-12-31T00:00:00Z\", finalizers: [kubernetes.io/pv-protection]}\nspec: {claimRef: {namespace: x, name: c}}\nstatus: {phase: Bound}"},
		{"an API that does not answer keeps a namespace", "Namespace /a", causeAPIService, "kind: Namespace\nmetadata: {name: a, deletionTimestamp: \"2029-12-31T00:00:00Z\"}\nstatus: {conditions: [{type: NamespaceDeletionDiscoveryFailure, status: \"True\"}]}\n---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.g}\nstatus: {conditions: [{type: Available, status: \"False\", reason: FailedDiscoveryCheck}]}"},
		{"content keeps a namespace", "Namespace /a", causeNamespaceContent, "kind: Namespace\nmetadata: {name: a, deletionTimestamp: \"2029-12-31T00:00:00Z\"}\nstatus: {conditions: [{type: NamespaceContentRemaining, status: \"True\"}]}"},
		{"a partition holds a rollout", "StatefulSet x/a", causePartition, "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a, namespace: x}\nspec: {updateStrategy: {rollingUpdate: {partition: 1}}}\nstatus: {availableReplicas: 1, currentRevision: a, updateRevision: b}"},
		{"a rollout is too slow", "Deployment x/a", causeDeploymentDeadline, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: x}\nstatus: {conditions: [{type: Progressing, status: \"False\", reason: ProgressDeadlineExceeded}]}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kind, key, _ := strings.Cut(test.subject, " ")
			namespace, name, _ := strings.Cut(key, "/")
			a := ask(t, Ref{kind, namespace, name}, nil, decode(t, test.objects)...)
			if len(a.Roots) == 0 || a.Roots[0].Cause != test.cause {
				t.Errorf("the root causes are %+v, not %s", a.Roots, test.cause)
			}
		})
	}
}

func rbacObjects(rule string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules: [" + rule + "]\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: b}\nroleRef: {kind: ClusterRole, name: r}\nsubjects: [{kind: User, name: ann}]"
}

// A denied request names the rule that comes nearest to it.
func TestDenialsNameTheNearestRule(t *testing.T) {
	for _, test := range []struct {
		rule, cause, remedy string
		request             Request
	}{
		{"{apiGroups: [''], resources: [pods], verbs: [get]}", causeRBACVerb, "--verb=delete --resource=pods", Request{Verb: "delete", Resource: "pods", Namespace: "x"}},
		{"{apiGroups: [''], resources: [secrets], resourceNames: [a], verbs: [get]}", causeRBACName, "--resource=secrets", Request{Verb: "get", Resource: "secrets", Name: "b", Namespace: "x"}},
		{"{apiGroups: [''], resources: [pods], verbs: [create]}", causeRBACSub, "--resource=pods/exec", Request{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "x"}},
		{"{apiGroups: [extensions], resources: [deployments], verbs: [list]}", causeRBACGroup, "--resource=deployments.apps", Request{Verb: "list", Group: "apps", Resource: "deployments"}},
		{"{nonResourceURLs: [/healthz], verbs: [get]}", causeRBAC, "--non-resource-url=/metrics", Request{Verb: "get", Path: "/metrics"}},
		{"{nonResourceURLs: ['/metrics/*'], verbs: [get]}", "", "", Request{Verb: "get", Path: "/metrics/cadvisor"}},
		{"{apiGroups: ['*'], resources: ['*/log'], verbs: [get]}", "", "", Request{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "x"}},
	} {
		test.request.User = "ann"
		found, allowed := Denied(SnapshotOf(now, nil, decode(t, rbacObjects(test.rule))...), test.request)
		switch {
		case test.cause == "":
			if len(found) > 0 || allowed == "" {
				t.Errorf("%s: denied: %+v", test.request, found)
			}
		case len(found) == 0 || found[0].Cause != test.cause || !strings.Contains(found[0].Remedy, test.remedy):
			t.Errorf("%s: %+v, not %s with %s", test.request, found, test.cause, test.remedy)
		}
	}
}

func TestForbiddenMessagesAreRead(t *testing.T) {
	for message, want := range map[string]Request{
		`Error from server (Forbidden): secrets is forbidden: User "ann" cannot list resource "secrets" in API group "" in the namespace "shop"`:                   {User: "ann", Verb: "list", Resource: "secrets", Namespace: "shop"},
		`deployments.apps "web" is forbidden: User "system:serviceaccount:a:b" cannot patch resource "deployments/scale" in API group "apps" in the namespace "x"`: {User: "system:serviceaccount:a:b", Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "web", Namespace: "x"},
		`nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" at the cluster scope`:                                                         {User: "ann", Verb: "list", Resource: "nodes"},
		`forbidden: User "ann" cannot get path "/metrics"`: {User: "ann", Verb: "get", Path: "/metrics"},
	} {
		r, ok := ParseForbidden(message)
		if r.String() != want.String() || r.User != want.User || r.Group != want.Group || !ok {
			t.Errorf("%s: %+v", message, r)
		}
	}
	if _, ok := ParseForbidden("nothing of the kind"); ok {
		t.Error("any text is a message")
	}
}

// A connection to a Service is judged at the ports of its pods.
func TestConnectionsToServices(t *testing.T) {
	objects := "kind: Service\nmetadata: {name: db, namespace: x}\nspec: {selector: {app: db}, ports: [{port: 80, targetPort: sql}]}\n---\n" +
		"kind: Pod\nmetadata: {name: db, namespace: x, labels: {app: db}}\nspec: {containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]}\nstatus: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}\n---\n" +
		"kind: Pod\nmetadata: {name: web, namespace: x}\n---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{ports: [{port: 5433}]}]}"
	traffic := Traffic{From: Ref{"Pod", "x", "web"}, To: Ref{"Service", "x", "db"}, Port: 80}
	judge := func(change string, port int32) string {
		traffic.Port = port
		if found := Blocked(SnapshotOf(now, nil, decode(t, strings.Replace(objects, "port: 5433", change, 1))...), traffic); len(found) > 0 {
			return found[0].Cause
		}
		return ""
	}
	if cause := judge("port: 5433", 80); cause != causeIngress {
		t.Errorf("the policy denies port 5432: %q", cause)
	}
	if cause := judge("port: 5432", 80); cause != "" {
		t.Errorf("the policy allows port 5432: %q", cause)
	}
	if cause := judge("port: 5432", 81); cause != causeServicePort {
		t.Errorf("the Service has no port 81: %q", cause)
	}
}

// FuzzMessages checks that no text of a log, a condition or a webhook makes the rules fail.
func FuzzMessages(f *testing.F) {
	f.Add("dial tcp: lookup db.shop.svc: no such host")
	f.Add(`failed calling webhook "w": x509: certificate is valid for a, not b`)
	f.Add(`exceeded quota: q, requested: pods=1 $1 $2`)
	f.Add("\x1b[2J\u202evariable X is not set\x00")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = ParseForbidden(text)
		crashing := pod("web", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reasonCrashLoop}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: text}},
			}}
		})
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Message: text}}
		for _, ref := range []Ref{refTo(crashing), refTo(set)} {
			a, err := Evaluate(SnapshotOf(now, map[string]string{"shop/web/c": text}, crashing, set), Question{Subject: &ref})
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := Print(&out, a); err != nil || strings.ContainsAny(out.String(), "\x00\x07\x1b\u202e\u200b") || out.Len() > 64<<10 {
				t.Errorf("%v, %d bytes: %q", err, out.Len(), out.String())
			}
		}
	})
}

// TestHealthyObjectsHaveNoFindings guards against false alarms.
func TestHealthyObjectsHaveNoFindings(t *testing.T) {
	healthy := decode(t, `kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
spec: {nodeName: n1, containers: [{name: c, image: app, ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: c, image: app, ready: true, state: {running: {}}}]}
---
kind: Service
metadata: {name: a, namespace: x}
spec: {selector: {app: a}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: a, namespace: x, creationTimestamp: "2029-12-31T12:00:00Z"}
spec: {schedule: "0 * * * *"}
status: {lastScheduleTime: "2030-01-01T00:00:00Z"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: x}
spec: {replicas: 1, template: {metadata: {labels: {app: a}}}}
status: {availableReplicas: 1, updatedReplicas: 1, replicas: 1}
---
kind: PersistentVolumeClaim
metadata: {name: a, namespace: x}
status: {phase: Bound}`+readyNode)
	a, err := Evaluate(SnapshotOf(now, nil, healthy...), Question{})
	if err != nil || len(a.Findings) != 0 || a.Looked != 6 {
		t.Errorf("%d objects, findings %+v, %v", a.Looked, a.Findings, err)
	}
}
