package resource

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What upstream tells of new objects of kinds beside pods and workloads.
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
		{"an audience that is asked for twice is not looked at again", driver("tokenRequests: [{audience: a}, {audience: a, expirationSeconds: 1}]"), []string{`spec.tokenRequests[1].audience: Duplicate value: "a"`}},
		{"an API service whose name is generated", service(", generateName: a..b"), []string{"metadata.generateName: Invalid value: \"a..b\": must be `spec.version+\".\"+spec.group`: \"v1.a.example\""}},
		{"an API service whose name would be generated as it is", service(", generateName: v1.a.example"), nil},
		{"spaces around a mutation are not shown", policy("MutatingAdmissionPolicy", "failurePolicy: Fail, reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: ' 1.1.1 '}}]"), []string{`Invalid value: "1.1.1": compilation failed: ERROR: <input>:1:4`}},
		{"nor those around a condition", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, validations: [{expression: 'true'}], matchConditions: [{name: a, expression: ' 1 '}]"), []string{`spec.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int`}},
		{"those of a validation are", policy("ValidatingAdmissionPolicy", "failurePolicy: Fail, validations: [{expression: ' 1 '}]"), []string{`spec.validations[0].expression: Invalid value: " 1 ": must evaluate to bool but got int`}},
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
