package resource

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kinds other than pods and workloads. The wanted errors are those of upstream's API server.
func TestNewObjectsOfOtherKindsAreToldWhatUpstreamTells(t *testing.T) {
	slice := func(rest string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspec: {driver: d.example, nodeName: node-1, pool: {name: p, resourceSliceCount: 1}" + rest + "}\n"
	}
	long := strings.Repeat("abcdefghij", 10)
	driver := func(rest string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nspec: {" + rest + "}\n"
	}
	service := func(meta string) string {
		return "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.a.example" + meta + "}\nspec: {group: a.example, version: v1, groupPriorityMinimum: 1, versionPriority: 1, service: {name: s, namespace: default}}\n"
	}
	policy := func(kind, rest string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nspec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, " + rest + "}\n"
	}
	attachment := func(volume string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node-1, source: {inlineVolumeSpec: {" + volume + "}}}\n"
	}
	block := func(cidr, except string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: " + cidr + ", except: [" + except + "]}}]}]}\n"
	}
	const inline = "accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: h}"
	const both = "spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a slice with devices and a list of no counters", slice(", devices: [{name: d}], sharedCounters: []"), []string{both}},
		{"a slice with counters and a list of no devices", slice(", devices: [], sharedCounters: [{name: c, counters: {m: {value: '1'}}}]"), []string{both}},
		{"a slice with two empty lists", slice(", devices: [], sharedCounters: []"), []string{both}},
		{"a slice with one empty list", slice(", devices: []"), nil},
		{"an attribute whose name is too long is shown without its middle", slice(", devices: [{name: d, attributes: {" + long + ": {}}}]"), []string{
			"spec.devices[0].attributes: Too long: may not be more than 32 bytes", "spec.devices[0].attributes[" + long[:47] + "..." + long[54:] + `]: Invalid value: "": exactly one value must be specified`}},
		{"a volume of a pod", attachment(inline + ", persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem, mountOptions: [a], volumeAttributesClassName: x"), nil},
		{"a volume of a pod that is none", attachment("mountOptions: [a]"), []string{"spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes", "spec.source.inlineVolumeSpec.accessModes: Required value", "spec.source.inlineVolumeSpec: Required value: must specify a volume type"}},
		{"a volume of a pod with what claims ask for", attachment(inline + ", capacity: {storage: 1Gi}, claimRef: {name: a}, storageClassName: x, nodeAffinity: {}"), []string{
			"spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes", "claimRef: Forbidden", "storageClassName: Forbidden", "nodeAffinity: Forbidden"}},
		{"a volume of a pod that is a block device", attachment(inline + ", volumeMode: Block, persistentVolumeReclaimPolicy: Delete"), []string{
			"volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes", "persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes"}},
		{"a volume of a pod of no driver", attachment("accessModes: [ReadWriteOnce], nfs: {server: a, path: /b}"), []string{"inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes"}},
		{"an exception that is written oddly, and outside", block("10.0.0.0/8", "11.0.0.1/16"), []string{"except[0]: Invalid value: \"11.0.0.1/16\": must not have bits set beyond the prefix length", "must be a strict subset of `cidr`"}},
		{"an exception that is written oddly, and inside", block("10.0.0.0/8", "10.1.0.1/16"), []string{"must not have bits set beyond the prefix length"}},
		{"an exception that is none", block("10.0.0.0/8", "'a'"), []string{"must be a valid CIDR value"}},
		{"an Ingress of two classes", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {kubernetes.io/ingress.class: a}}\nspec: {ingressClassName: b, defaultBackend: {service: {name: s, port: {number: 80}}}}\n", []string{`annotations.kubernetes.io/ingress.class: Invalid value: "a": must match`}},
		{"a host that is an address, however it is written", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {rules: [{host: 010.0.0.1}]}\n", []string{`spec.rules[0].host: Invalid value: "010.0.0.1": must be a DNS name, not an IP address`}},
		{"a host that looks like one", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec: {rules: [{host: '1.2.3'}]}\n", nil},
		{"an audience that is asked for twice is not looked at again", driver("tokenRequests: [{audience: a}, {audience: a, expirationSeconds: 1}]"), []string{`spec.tokenRequests[1].audience: Duplicate value: "a"`}},
		{"an API service whose name is generated", service(", generateName: a..b"), []string{"metadata.generateName: Invalid value: \"a..b\": must be `spec.version+\".\"+spec.group`: \"v1.a.example\""}},
		{"an API service whose name would be generated as it is", service(", generateName: v1.a.example"), nil},
		{"spaces around a mutation are not shown", policy("MutatingAdmissionPolicy", "failurePolicy: Fail, reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: ' 1.1.1 '}}]"), []string{`Invalid value: "1.1.1": compilation failed: ERROR: <input>:1:4`}},
		{"nor those around a condition", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, validations: [{expression: 'true'}], matchConditions: [{name: a, expression: ' 1 '}]"), []string{`spec.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int`}},
		{"those of a validation are", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, validations: [{expression: ' 1 '}]"), []string{`spec.validations[0].expression: Invalid value: " 1 ": must evaluate to bool but got int`}},
		{"all that is wrong with the kind of parameters is told at once", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, paramKind: {apiVersion: v1, kind: a."+strings.Repeat("a", 62)+"}, validations: [{expression: 'true'}]"), []string{"otherwise match: must be no more than 63 characters,a DNS-1035 label must consist of"}},
		{"a volume has what it has, in whatever parts", "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi, a/b: 1500m}, accessModes: [ReadWriteOnce], hostPath: {path: /a}}\n", []string{`spec.capacity: Unsupported value: {`}},
		{"an annotation is compiled without them", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, auditAnnotations: [{key: a, valueExpression: ' 1.1.1 '}]"), []string{`Invalid value: " 1.1.1 ": compilation failed: ERROR: <input>:1:4`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}

func TestNamesThatAreTooLongAreToldSoInTheWordsOfTheirKind(t *testing.T) {
	for kind, want := range map[string]string{
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n":   "must be no more than 253 bytes",
		"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass": "must be no more than 253 characters",
	} {
		obj, s := read(t, kind)
		obj.(metav1.Object).SetName(strings.Repeat("a", 254))
		expect(t, s.ValidateNew(obj, false), want)
	}
}

func TestADefinitionWithoutANameIsToldSoOnce(t *testing.T) {
	obj, s := read(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {group: a.example, scope: Cluster, names: {plural: as, singular: a, kind: A, listKind: AList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n")
	obj.(metav1.Object).SetName("")
	expect(t, s.ValidateNew(obj, false), "metadata.name: Required value: name or generateName is required")
}

func TestFormatsThatNobodyKnowsAreWarnedOfWhereverTheyStand(t *testing.T) {
	obj, s := read(t, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: a.example
  scope: Cluster
  names: {plural: as, singular: a, kind: A, listKind: AList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {z: {type: string, format: z, not: {format: b}}, y: {type: string, anyOf: [{format: d}], allOf: [{format: c}, {not: {format: a}}], oneOf: [{format: e}]}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {y: {type: string, format: a2}, z: {type: string, format: z}}}}}
`)
	var want []string
	for _, f := range []string{"a", "b", "c", "d", "e", "z", "a2"} {
		want = append(want, `unrecognized format "`+f+`"`)
	}
	if got := s.Warnings(obj, nil); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestWhatIsOldIsWarnedOf(t *testing.T) {
	const arch = `deprecated since v1.14; use "kubernetes.io/arch" instead`
	for _, c := range []struct {
		name, manifest string
		always         bool // checked in updates too
		want           []string
	}{
		{"an Ingress that names its class in an annotation", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {kubernetes.io/ingress.class: a}}\n", false, []string{`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`}},
		{"an Ingress that names it in both places", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {annotations: {kubernetes.io/ingress.class: a}}\nspec: {ingressClassName: a}\n", true, nil},
		{"endpoints that are names", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: FQDN\nendpoints: []\n", false, []string{"spec.addressType: FQDN endpoints are deprecated"}},
		{"endpoints that are addresses", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: []\n", true, nil},
		{"a topology of old labels", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: p\nallowedTopologies: [{matchLabelExpressions: [{key: a, values: [b]}, {key: beta.kubernetes.io/arch, values: [b]}]}]\n", true, []string{"allowedTopologies[0].matchLabelExpressions[1].key: " + arch}},
		{"a capacity of old labels", "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: s\nnodeTopology: {matchLabels: {beta.kubernetes.io/arch: a, b: c}, matchExpressions: [{key: beta.kubernetes.io/arch, operator: Exists}]}\n", true,
			[]string{"nodeTopology.matchExpressions[0].key: beta.kubernetes.io/arch is " + arch, "nodeTopology.matchLabels.beta.kubernetes.io/arch: " + arch}},
		{"a capacity of everywhere", "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: s\n", true, nil},
		{"a runtime on old labels", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: h\nscheduling: {nodeSelector: {beta.kubernetes.io/arch: a, c: d}}\n", true, []string{"scheduling.nodeSelector: " + arch}},
		{"a runtime anywhere", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: h\n", true, nil},
	} {
		obj, s := read(t, c.manifest)
		if got := s.Warnings(obj, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q", c.name, got)
		}
		if !c.always {
			c.want = nil
		}
		if got := s.Warnings(obj, obj); !slices.Equal(got, c.want) {
			t.Errorf("%s, updated: got %q", c.name, got)
		}
	}
}

func TestEndpointsThatStayAreNotHeldToAnotherType(t *testing.T) {
	slice := func(kind, rest string) string {
		return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: " + kind + "\nendpoints: [{addresses: [10.0.0.1]" + rest + "}]\n"
	}
	old, s := read(t, slice("IPv4", ""))
	const stays = "addressType: Invalid value: \"IPv6\": field is immutable"
	for manifest, want := range map[string][]string{
		slice("IPv6", ""):              {stays},
		slice("IPv6", ", hostname: h"): {stays, "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address"},
		slice("IPv4", ", hostname: h"): nil,
	} {
		obj, _ := read(t, manifest)
		expect(t, s.ValidateUpdate(obj, old), want...)
	}
}
