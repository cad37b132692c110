package resource

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// read decodes and defaults a manifest as the server does before validation.
func read(t *testing.T, manifest string) (runtime.Object, *strategy.Strategy) {
	t.Helper()
	obj, gvk, err := api.Codecs.UniversalDeserializer().Decode([]byte(manifest), nil, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, manifest)
	}
	k, _ := api.ByKind(gvk.GroupKind())
	s := For(k.GroupResource())
	meta := obj.(metav1.Object)
	if meta.GetName() == "" {
		meta.SetName("a")
	}
	meta.SetUID("u-i-d")
	if k.Namespaced {
		meta.SetNamespace("default")
	}
	if s.Default != nil {
		s.Default(obj)
	}
	return obj, s
}

const podTemplate = `{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}`

func workload(kind, more string) string {
	return "apiVersion: apps/v1\nkind: " + kind + "\nspec: {selector: {matchLabels: {a: b}}, template: " + podTemplate + more + "}\n"
}

func job(spec string) string {
	return "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}" + spec + "}\n"
}

func cronJob(spec string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}}" + spec + "}\n"
}

func hpa(spec string) string {
	return "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}, maxReplicas: 3" + spec + "}\n"
}

func TestValidateCreate(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a deployment", workload("Deployment", ""), nil},
		{"a deployment without selector", "apiVersion: apps/v1\nkind: Deployment\nspec: {template: " + podTemplate + "}\n",
			[]string{"spec.selector: Required value", "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"a deployment whose selector is empty", "apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {}, template: " + podTemplate + "}\n",
			[]string{"spec.selector: Invalid value: {}: empty selector is invalid for deployment"}},
		{"a deployment that selects others' pods", "apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {matchLabels: {x: z}}, template: " + podTemplate + "}\n",
			[]string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"a deployment with less than no pods", workload("Deployment", ", replicas: -1"),
			[]string{"spec.replicas: Invalid value: -1: must be greater than or equal to 0"}},
		{"a deployment that cannot roll", workload("Deployment", ", strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}"),
			[]string{"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"}},
		{"a deployment that recreates and rolls", workload("Deployment", ", strategy: {type: Recreate, rollingUpdate: {}}"),
			[]string{"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"}},
		{"a deployment with an odd percentage", workload("Deployment", ", strategy: {rollingUpdate: {maxSurge: some, maxUnavailable: 101%}}"),
			[]string{"spec.strategy.rollingUpdate.maxSurge: Invalid value: \"some\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
				"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"}},
		{"a deployment that gives up before it starts", workload("Deployment", ", minReadySeconds: 600"),
			[]string{"spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"}},
		{"a deployment of pods that end", strings.Replace(workload("Deployment", ""), "spec: {containers", "spec: {restartPolicy: Never, containers", 1),
			[]string{`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`}},

		{"a replica set", workload("ReplicaSet", ""), nil},
		{"a daemon set", workload("DaemonSet", ""), nil},
		{"a daemon set without selector", "apiVersion: apps/v1\nkind: DaemonSet\nspec: {template: " + podTemplate + "}\n",
			[]string{"spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"}},
		{"a daemon set with both budgets", workload("DaemonSet", ", updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}"),
			[]string{"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"}},
		{"a daemon set with no budget", workload("DaemonSet", ", updateStrategy: {rollingUpdate: {maxUnavailable: 0}}"),
			[]string{"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"}},
		{"a stateful set", workload("StatefulSet", ", serviceName: s"), nil},
		{"a stateful set with an odd policy", workload("StatefulSet", ", podManagementPolicy: Odd, updateStrategy: {type: OnDelete, rollingUpdate: {partition: -1}}"),
			[]string{"spec.podManagementPolicy: Invalid value: \"Odd\": must be 'OrderedReady' or 'Parallel'",
				`spec.updateStrategy.rollingUpdate: Invalid value: {"partition":-1}: only allowed for updateStrategy 'RollingUpdate'`}},
		{"a stateful set that starts below zero", workload("StatefulSet", ", ordinals: {start: -1}, persistentVolumeClaimRetentionPolicy: {whenScaled: Burn}"),
			[]string{`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Burn": supported values: "Retain", "Delete"`,
				"spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"}},
		{"a revision without data", "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: -1\n",
			[]string{"data: Required value: data is mandatory", "revision: Invalid value: -1: must be greater than or equal to 0"}},

		{"a job", job(""), nil},
		{"a job of pods that never end", strings.Replace(job(""), "restartPolicy: Never, ", "", 1),
			[]string{`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},
		{"an indexed job without completions", job(", completionMode: Indexed, parallelism: 2"),
			[]string{"spec.completions: Required value: when completion mode is Indexed"}},
		{"a limit per index without indexes", job(", backoffLimitPerIndex: 1"),
			[]string{"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"}},
		{"a failure policy with holes", job(", podFailurePolicy: {rules: [{action: FailJob}, {action: FailIndex, onExitCodes: {operator: In, values: [2, 0, 2]}}, {onPodConditions: [{type: A}]}]}"),
			[]string{"spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
				`spec.podFailurePolicy.rules[1].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`,
				"spec.podFailurePolicy.rules[1].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
				"spec.podFailurePolicy.rules[1].onExitCodes.values[2]: Duplicate value: 2",
				"spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
				`spec.podFailurePolicy.rules[2].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`}},
		{"a success policy beyond the job", job(", completionMode: Indexed, completions: 5, successPolicy: {rules: [{succeededIndexes: \"0-2\", succeededCount: 4}, {succeededIndexes: \"7\"}, {}]}"),
			[]string{"spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)",
				`spec.successPolicy.rules[1].succeededIndexes: Invalid value: "7": error parsing succeededIndexes: too large index: "7"`,
				"spec.successPolicy.rules[2]: Required value: at least one of succeededCount or succeededIndexes must be specified"}},

		{"a cron job", cronJob(`, schedule: "*/5 * * * *", timeZone: Etc/UTC`), nil},
		{"a cron job without schedule", cronJob(""), []string{"spec.schedule: Required value"}},
		{"a cron job with an odd schedule", cronJob(`, schedule: "often"`),
			[]string{`spec.schedule: Invalid value: "often": expected exactly 5 fields, found 1: [often]`}},
		{"a cron job with a zone and nothing else", cronJob(`, schedule: "CRON_TZ=UTC"`), []string{
			`spec.schedule: Invalid value: "CRON_TZ=UTC": expected exactly 5 fields, found 0: []`, `spec.schedule: Invalid value: "CRON_TZ=UTC": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`}},
		{"a cron job of nowhere", cronJob(`, schedule: "* * * * *", timeZone: Mars/Base`),
			[]string{`spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base`}},
		{"a cron job with two zones", cronJob(`, schedule: "TZ=UTC * * * * *", timeZone: Etc/UTC`),
			[]string{`spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule`}},

		{"an autoscaler", hpa(""), nil},
		{"an autoscaler with less at most than at least", hpa(", minReplicas: 5"),
			[]string{"spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"}},
		{"an autoscaler by nothing", hpa(", metrics: [{type: Resource}]"),
			[]string{"spec.metrics[0].resource: Required value: must populate information for the given metric source"}},
		{"an autoscaler with odd rules", hpa(", behavior: {scaleUp: {stabilizationWindowSeconds: 3601, policies: [{type: Odd, value: 0, periodSeconds: 1}]}}"),
			[]string{"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
				`spec.behavior.scaleUp.policies[0].type: Unsupported value: "Odd": supported values: "Percent", "Pods"`,
				"spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero"}},

		{"a role", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: [{verbs: [get], resources: [pods], apiGroups: ['']}]\n", nil},
		{"a role with holes", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: [{}, {verbs: [get], nonResourceURLs: [/x]}]\n",
			[]string{"rules[0].verbs: Required value: verbs must contain at least one value",
				"rules[0].apiGroups: Required value: resource rules must supply at least one api group",
				"rules[0].resources: Required value: resource rules must supply at least one resource",
				`rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs`}},
		{"a binding", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nroleRef: {kind: ClusterRole, name: 'system:x'}\nsubjects: [{kind: User, name: u}]\n", nil},
		{"a binding with holes", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nroleRef: {kind: Role, name: a/b}\nsubjects: [{kind: ServiceAccount, name: u}, {kind: Robot, name: r}]\n",
			[]string{`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`, `roleRef.name: Invalid value: "a/b": may not contain '/'`,
				"subjects[0].namespace: Required value", `subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`}},

		{"a slice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\nports: [{port: 80}]\n", nil},
		{"a slice with holes", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: [{addresses: []}, {addresses: ['fd00::1', 127.0.0.1]}]\nports: [{port: 0}, {port: 1, protocol: ''}]\n",
			[]string{"endpoints[0].addresses: Required value: must contain at least 1 address",
				`endpoints[1].addresses: Invalid value: "fd00::1": must be an IPv4 address`,
				`endpoints[1].addresses[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`ports[1].name: Duplicate value: ""`, `ports[1].protocol: Unsupported value: "": supported values: "SCTP", "TCP", "UDP"`}},

		{"a lease that is over at once", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nspec: {leaseDurationSeconds: 0}\n",
			[]string{"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"}},
		{"a priority class that claims to be the system's", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: system-x}\nvalue: 1\n",
			[]string{"metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"}},
		{"the system's priority class", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: system-node-critical}\nvalue: 2000001000\n", nil},
		{"a priority above users'", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 1000000001\n",
			[]string{"value: Forbidden: maximum allowed value of a user defined priority is 1000000000"}},
		{"a runtime class", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: Kata\n",
			[]string{`handler: Invalid value: "Kata": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`}},
		{"a storage class", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: kubernetes.io/no-provisioner\n", nil},
		{"a storage class by nobody", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nreclaimPolicy: Recycle\nparameters: {'': x}\n",
			[]string{"provisioner: Required value", `parameters: Invalid value: "": field can not be empty.`,
				`reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`}},
		{"an attachment of nothing", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: d, nodeName: node}\n",
			[]string{"spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"}},
		{"a driver", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example}\nspec: {tokenRequests: [{audience: a, expirationSeconds: 1}, {audience: a}]}\n",
			[]string{"spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
				`spec.tokenRequests[1].audience: Duplicate value: "a"`}},
		{"a certificate request of a stranger", "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nspec: {request: eA==, signerName: me, usages: [any]}\n",
			[]string{"spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
				`spec.signerName: Invalid value: "me": must be a fully qualified domain and path of the form 'example.com/signer-name'`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj)
			}
			var got []string
			for _, err := range s.ValidateCreate(obj) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestValidateUpdate(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a deployment scales", workload("Deployment", ""), workload("Deployment", ", replicas: 3"), nil},
		{"a deployment's selector stays", workload("Deployment", ""), strings.ReplaceAll(workload("Deployment", ""), "a: b", "a: c"),
			[]string{`spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable`}},
		{"a stateful set scales", workload("StatefulSet", ""), workload("StatefulSet", ", replicas: 3, minReadySeconds: 2"), nil},
		{"a stateful set's service stays", workload("StatefulSet", ", serviceName: s"), workload("StatefulSet", ", serviceName: t"),
			[]string{"spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"}},
		{"an indexed job grows", job(", completionMode: Indexed, completions: 2, parallelism: 2"), job(", completionMode: Indexed, completions: 3, parallelism: 3"), nil},
		{"an indexed job grows alone", job(", completionMode: Indexed, completions: 2, parallelism: 2"), job(", completionMode: Indexed, completions: 3, parallelism: 2"),
			[]string{"spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"}},
		{"a job does not grow", job(", completions: 2"), job(", completions: 3"), []string{"spec.completions: Invalid value: 3: field is immutable"}},
		{"a suspended job moves", job(", suspend: true"), strings.Replace(job(", suspend: true"), "{containers", "{nodeSelector: {x: z}, containers", 1), nil},
		{"a binding's role stays", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nroleRef: {kind: Role, name: a}\n",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nroleRef: {kind: Role, name: b}\n",
			[]string{`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}: cannot change roleRef`}},
		{"a priority stays", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 1\n", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 2\n",
			[]string{"value: Forbidden: may not be changed in an update."}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, c.old)
			if s.PrepareCreate != nil {
				s.PrepareCreate(old)
			}
			obj, _ := read(t, c.obj)
			if s.PrepareCreate != nil {
				s.PrepareCreate(obj) // clients send the generated labels back
			}
			if s.PrepareUpdate != nil {
				s.PrepareUpdate(obj, old)
			}
			var got []string
			for _, err := range s.ValidateUpdate(obj, old) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// TestValidationSurvivesRandomObjects looks for panics.
func TestValidationSurvivesRandomObjects(t *testing.T) {
	for gr, s := range strategies {
		k, _ := api.ByResource(gr)
		k = hubOf(k)
		for seed := range int64(12) {
			obj, old := k.New(), k.New()
			newFiller(seed).Fill(obj)
			newFiller(seed + 500).Fill(old)
			if s.ValidateCreate != nil {
				_ = s.ValidateCreate(obj).ToAggregate()
			}
			if s.ValidateUpdate != nil {
				_ = s.ValidateUpdate(obj, old)
			}
			if s.ValidateStatus != nil {
				_ = s.ValidateStatus(obj, old)
			}
		}
	}
}
