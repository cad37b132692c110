package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The wanted errors are those of upstream's API server.
func TestNewObjectsAreToldWhatUpstreamTells(t *testing.T) {
	endpoints := func(ip string) string {
		return "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: '" + ip + "'}]}]\n"
	}
	node := func(driver string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: node" + driver + "}]}\n"
	}
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}], " + spec + "}\n"
	}
	flow := func(spec string) string {
		return "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nspec: {priorityLevelConfiguration: {name: p}, matchingPrecedence: 5, " + spec + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an endpoint without an address", endpoints(""), []string{`subsets[0].addresses[0].ip: Invalid value: "": must be a valid IP address, (e.g.`, `subsets[0].addresses[0].ip: Invalid value: "": must be a valid IP address`}},
		{"an address with zeros before it", endpoints("010.0.0.1"), []string{`subsets[0].addresses[0].ip: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{"a pod's name server with zeros before it", "apiVersion: v1\nkind: Pod\nspec: {dnsConfig: {nameservers: [010.0.0.1]}, containers: [{name: c, image: i}]}\n", []string{`spec.dnsConfig.nameservers[0]: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{"an IPv4 address as IPv6", service("externalIPs: ['::ffff:1.2.3.4']"), []string{`spec.externalIPs[0]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address`}},
		{"a range with an address in it", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}\n", []string{`spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length`}},
		{"no address and another", service("clusterIP: None, clusterIPs: [None, 10.0.0.1]"), []string{"spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.1\"]: 'None' must be the first and only value"}},
		{"addresses beside none", service("clusterIPs: [10.0.0.1]"), []string{"must be empty when `clusterIP` is not specified"}},
		{"a class that means nothing here", service("loadBalancerClass: " + strings.Repeat("a", 70)), []string{"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{"flows that are told apart by nothing", flow("distinguisherMethod: {type: x}"), []string{`spec.distinguisherMethod.type: Unsupported value: {"type":"x"}: supported values: "ByNamespace", "ByUser"`}},
		{"flows of a namespace that cannot be", flow("rules: [{subjects: [{kind: User, user: {name: a}}], resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], namespaces: [a.b]}]}]"), []string{"namespaces[0]: Invalid value: \"a.b\": each member of this list must be '*' or a DNS-1123 label; must not contain dots"}},
		{"a volume of two kinds is the one that is looked at first", "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: '-1'}, accessModes: [ReadWriteOnce], nfs: {server: a, path: /b}, flocker: {}}\n", []string{
			"spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity", "spec.capacity[storage]: Invalid value:", "spec.flocker: Required value: one of datasetName and datasetUUID is required", "spec.nfs: Forbidden: may not specify more than 1 volume type"}},
		{"a mount of no volume", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, volumeMounts: [{mountPath: /a}]}]}\n", []string{"volumeMounts[0].name: Required value", `volumeMounts[0].name: Not found: ""`}},
		{"a message from nowhere", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, terminationMessagePolicy: x}]}\n", []string{`supported values: "File", "FallbackToLogsOnError"`}},
		{"a profile of a type that is none", "apiVersion: v1\nkind: Pod\nspec: {securityContext: {seccompProfile: {type: x, localhostProfile: a}}, containers: [{name: c, image: i}]}\n", []string{"seccompProfile.type: Unsupported value", "localhostProfile: Invalid value: {\"type\":\"x\",\"localhostProfile\":\"a\"}: can only be set when seccomp type is Localhost"}},
		{"keys of a driver twice, and none", node(", topologyKeys: [a, a]"), []string{`spec.drivers[0]: Duplicate value: "a"`}},
		{"a key of a driver that is none", node(", topologyKeys: ['']"), []string{"spec.drivers[0]: Required value", `spec.drivers[0]: Invalid value: "": name part must be non-empty`, `spec.drivers[0]: Invalid value: "": name part must consist`}},
		{"two volumes, one of which cannot be", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node, source: {persistentVolumeName: a..b, inlineVolumeSpec: {}}}\n",
			[]string{"spec.source: Forbidden: must specify exactly one", `spec.source.persistentVolumeName: Invalid value: "a..b"`}},
		{"a volume that cannot be", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node, source: {persistentVolumeName: a..b}}\n", []string{`spec.source.persistentVolumeName: Invalid value: "a..b": a lowercase RFC 1123 subdomain`}},
		{"a revision of no object", "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\ndata: 1\n", []string{"data: Required value: data must be a valid JSON object"}},
		{"a policy of no direction", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, policyTypes: ['']}\n", []string{`spec.policyTypes[0]: Unsupported value: "": supported values: "Ingress", "Egress"`}},
		{"parameters that are missed in no way", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nspec: {policyName: p, validationActions: [Deny], paramRef: {name: a, parameterNotFoundAction: ''}}\n",
			[]string{"spec.paramRef.parameterNotFoundAction: Required value"}},
		{"parameters by a name and by a selector that is wrong", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nspec: {policyName: p, validationActions: [Deny], paramRef: {name: a, parameterNotFoundAction: Deny, selector: {matchExpressions: [{key: a, operator: x}]}}}\n",
			[]string{"spec.paramRef.name: Forbidden: name and selector are mutually exclusive", "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive", `spec.paramRef.selector.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesAreToldWhatUpstreamTells(t *testing.T) {
	policy := func(selector string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: " + selector + "}\n"
	}
	good, bad := "{matchExpressions: [{key: a, operator: In, values: [b]}]}", "{matchExpressions: [{key: a, operator: In, values: ['a b']}]}"
	revision := func(data string) string {
		return "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\n" + data + "\n"
	}
	headless := func(families string) string {
		return "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}], clusterIP: None, clusterIPs: [None], ipFamilies: " + families + "}\n"
	}
	endpoints := "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: 010.0.0.1}]}]\n"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a selector becomes wrong", policy(good), policy(bad), []string{`spec.podSelector.matchExpressions[0].values[0]: Invalid value: "a b": a valid label`}},
		{"a selector that was wrong before", policy(bad), policy(bad), nil},
		{"an address with zeros that was there before", endpoints, endpoints, nil},
		{"the families of a service without addresses", headless("[IPv4, IPv6]"), headless("[IPv6, IPv4]"), nil},
		{"a revision loses its data", revision("data: {a: b}"), revision(""), []string{"data: Invalid value: "}},
		{"a driver of a node changes", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: a}]}\n", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: b}]}\n", []string{"spec.drivers: Invalid value: "}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, c.old)
			obj, _ := read(t, c.obj)
			expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestSomeKindsAskForTheRuleOfNamesAgain(t *testing.T) {
	for manifest, again := range map[string]bool{"apiVersion: v1\nkind: ConfigMap\n": true, "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n": false} {
		old, s := read(t, manifest)
		obj, _ := read(t, manifest)
		obj.(metav1.Object).SetGenerateName("UPPER")
		obj.(metav1.Object).SetResourceVersion("1")
		if errs := s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), true, ""); (len(errs) > 0) != again {
			t.Errorf("%s: %v", manifest, errs)
		}
	}
}

func TestAStatusOfOneKindAsksForTheRuleOfNamesAgain(t *testing.T) {
	for manifest, again := range map[string]bool{"apiVersion: v1\nkind: PersistentVolume\n": false, "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\n": true} {
		old, s := read(t, manifest)
		obj, _ := read(t, manifest)
		obj.(metav1.Object).SetGenerateName("UPPER")
		obj.(metav1.Object).SetResourceVersion("1")
		if errs := s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), false, "status"); (len(errs) > 0) != again {
			t.Errorf("%s: %v", manifest, errs)
		}
	}
}

func TestAnUpdateIsToldAllThatIsWrongWithItsMetadata(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, resourceVersion: '1', deletionTimestamp: '2024-01-01T00:00:00Z', finalizers: [a.example/held]}\n"
	newOnes := `metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x"}`
	for _, c := range []struct {
		name   string
		change func(m metav1.Object)
		want   []string
	}{
		{"a new finalizer that could not be one", func(m metav1.Object) { m.SetFinalizers([]string{"x"}) }, []string{newOnes, newOnes, "metadata.finalizers[0]: Invalid value"}},
		{"another uid and a name that could not be made", func(m metav1.Object) { m.SetUID("x"); m.SetGenerateName("a/") },
			[]string{"metadata.generateName: Invalid value: \"a/\": may not contain '/'", "metadata.uid: Invalid value", "metadata.uid: Invalid value", "metadata.generateName: Invalid value: \"a/\": a lowercase"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, manifest)
			obj, _ := read(t, manifest)
			c.change(obj.(metav1.Object))
			expect(t, s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), true, ""), c.want...)
		})
	}
}

func TestAStatusOfSomeKindsLeavesMetadataAsItWas(t *testing.T) {
	for _, manifest := range []string{
		"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\n",
		"apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\n", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\n",
	} {
		old, s := read(t, manifest)
		obj, _ := read(t, manifest)
		obj.(metav1.Object).SetLabels(map[string]string{"a": "b"})
		obj.(metav1.Object).SetFinalizers([]string{"a.example/b"})
		s.PrepareStatus(obj, old)
		if m := obj.(metav1.Object); len(m.GetLabels())+len(m.GetFinalizers()) > 0 {
			t.Errorf("%s: labels %v, finalizers %v", manifest, m.GetLabels(), m.GetFinalizers())
		}
		obj.(metav1.Object).SetGenerateName("a-")
		s.PrepareStatus(obj, old)
		if taken := obj.(metav1.Object).GetGenerateName() != ""; taken == strings.Contains(manifest, "flowcontrol") {
			t.Errorf("%s: the name that its own would be generated from is taken: %v", manifest, taken)
		}
	}
}

func TestAClaimTakesDataOfClaimsAndSnapshotsOnly(t *testing.T) {
	cases := []struct {
		name, source string
		kept         bool
	}{
		{"a claim", "dataSource: {kind: PersistentVolumeClaim, name: c}", true},
		{"a snapshot", "dataSource: {kind: VolumeSnapshot, name: s, apiGroup: snapshot.storage.k8s.io}", true},
		{"anything else", "dataSource: {kind: Other, name: o, apiGroup: a.example}", false},
		{"anything else by reference", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example}", true},
		{"something of another namespace", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example, namespace: b}", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {"+c.source+"}\n")
			s.PrepareCreate(obj)
			if claim := obj.(*corev1.PersistentVolumeClaim); (claim.Spec.DataSourceRef != nil) != c.kept {
				t.Errorf("%v, %v", claim.Spec.DataSource, claim.Spec.DataSourceRef)
			}
		})
	}
}

func TestAClaimWithoutDataIsAskedForSomeInAnUpdateAsItIsWhenNew(t *testing.T) {
	for _, c := range []struct {
		name, had, source string
		kept              bool
	}{
		{"something of another namespace", "", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example, namespace: b}", false},
		{"anything else", "", "dataSource: {kind: Other, name: o, apiGroup: a.example}", false},
		{"a claim", "", "dataSource: {kind: PersistentVolumeClaim, name: c}", true},
		{"something of another namespace, where there was a claim", "dataSource: {kind: PersistentVolumeClaim, name: c}", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example, namespace: b}", true},
	} {
		old, s := read(t, "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {"+c.had+"}\n")
		obj, _ := read(t, "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {"+c.source+"}\n")
		s.PrepareUpdate(obj, old)
		if claim := obj.(*corev1.PersistentVolumeClaim); (claim.Spec.DataSourceRef != nil) != c.kept {
			t.Errorf("%s: %v, %v", c.name, claim.Spec.DataSource, claim.Spec.DataSourceRef)
		}
	}
}

func TestOnlyWhatIsRequiredOfNodesIsHeldToLabels(t *testing.T) {
	const term = "matchExpressions: [{key: a, operator: In, values: [a/b]}]"
	for affinity, want := range map[string]int{
		"requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{" + term + "}]}":                                          1,
		"preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {" + term + "}}]":                                     0,
		"preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a b, operator: Exists}]}}]": 1,
	} {
		obj, _ := read(t, "apiVersion: v1\nkind: Pod\nspec: {affinity: {nodeAffinity: {"+affinity+"}}}\n")
		errs := validateNodeAffinity(obj.(*corev1.Pod).Spec.Affinity.NodeAffinity, field.NewPath("a"))
		if len(errs) != want {
			t.Errorf("%s: %v", affinity, errs)
		}
	}
}

func TestWhatIsAllocatedToAClaim(t *testing.T) {
	cases := []struct {
		name   string
		status corev1.PersistentVolumeClaimStatus
		want   []string
	}{
		{"modes are not looked at", corev1.PersistentVolumeClaimStatus{AccessModes: []corev1.PersistentVolumeAccessMode{"x"}}, nil},
		{"less than nothing", corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{"storage": resource.MustParse("-1")}}, []string{"status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"}},
		{"what claims have not", corev1.PersistentVolumeClaimStatus{AllocatedResources: corev1.ResourceList{"cpu": resource.MustParse("1"), "a.example/b": resource.MustParse("1")}}, []string{`status.allocatedResources: Unsupported value: "cpu": supported values: "storage"`}},
		{"a way to grow that is none", corev1.PersistentVolumeClaimStatus{AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "x"}}, []string{`status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {resourceVersion: '1'}\nspec: {accessModes: [ReadWriteOnce]}\n")
			claim := old.DeepCopyObject().(*corev1.PersistentVolumeClaim)
			claim.Status = c.status
			expect(t, s.ValidateStatus(claim, old), c.want...)
		})
	}
}

func TestNamesThatBecomeHostnamesAreWarnedOf(t *testing.T) {
	for _, kind := range []string{"Deployment", "ReplicaSet"} {
		obj, s := read(t, "apiVersion: apps/v1\nkind: "+kind+"\nmetadata: {name: a.b}\n")
		if w := s.Warnings(obj, nil); len(w) != 1 || !strings.Contains(w[0], "[must not contain dots]") {
			t.Errorf("%s: %v", kind, w)
		}
		if w := s.Warnings(obj, obj); len(w) > 0 {
			t.Errorf("an update of a %s: %v", kind, w)
		}
	}
}

func TestTheErrorOfAnAttachmentIsShort(t *testing.T) {
	for size, want := range map[int][]string{1024: nil, 1025: {"status.attachError.message: Too long: may not be more than 262144 bytes", "status.detachError.message: Too long: may not be more than 262144 bytes"}} {
		manifest := "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a.example, nodeName: node, source: {persistentVolumeName: a}}\n"
		old, s := read(t, manifest)
		message := strings.Repeat("x", size)
		obj, _ := read(t, manifest+"status: {attached: false, attachError: {message: "+message+"}, detachError: {message: "+message+"}}\n")
		expect(t, s.ValidateStatus(obj, old), want...)
	}
}

func TestTheQOSClassOfAPodStaysTheStoredOne(t *testing.T) {
	const best, burstable, guaranteed = corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	const immutable = "status.qosClass: Invalid value: "
	cases := []struct {
		name              string
		stored, told, now corev1.PodQOSClass
		want              []string
	}{
		{"none is told", guaranteed, "", guaranteed, nil},
		{"the stored one is told", guaranteed, guaranteed, guaranteed, nil},
		{"the one of the spec is told, another is stored", guaranteed, best, best, []string{immutable}},
		{"another is told", guaranteed, burstable, burstable, []string{immutable}},
		{"none is stored and none is told", "", "", best, nil},
		{"none is stored and the one of the spec is told", "", best, best, nil},
		{"none is stored and another is told", "", burstable, burstable, []string{immutable}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}\n")
			old := obj.DeepCopyObject().(*corev1.Pod)
			p := obj.(*corev1.Pod)
			old.Status.QOSClass, p.Status.QOSClass = c.stored, c.told
			s.PrepareStatus(p, old)
			if p.Status.QOSClass != c.now {
				t.Errorf("the class becomes %q, want %q", p.Status.QOSClass, c.now)
			}
			expect(t, s.ValidateStatus(p, old), c.want...)
		})
	}
}
