package resource

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What upstream's API server answered when the comparison asked it, and ours answered otherwise.
func TestNewObjectsAreToldWhatUpstreamTells(t *testing.T) {
	endpoints := func(ip string) string {
		return "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: '" + ip + "'}]}]\n"
	}
	node := func(driver string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: [{name: d.example, nodeID: node" + driver + "}]}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an endpoint without an address", endpoints(""), []string{`subsets[0].addresses[0].ip: Invalid value: "": must be a valid IP address, (e.g.`, `subsets[0].addresses[0].ip: Invalid value: "": must be a valid IP address`}},
		{"an address with zeros before it", endpoints("010.0.0.1"), []string{`subsets[0].addresses[0].ip: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{"keys of a driver twice, and none", node(", topologyKeys: [a, a]"), []string{`spec.drivers[0]: Duplicate value: "a"`}},
		{"a key of a driver that is none", node(", topologyKeys: ['']"), []string{"spec.drivers[0]: Required value", `spec.drivers[0]: Invalid value: "": name part must be non-empty`, `spec.drivers[0]: Invalid value: "": name part must consist`}},
		{"a volume that cannot be", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node, source: {persistentVolumeName: a..b}}\n", []string{`spec.source.persistentVolumeName: Invalid value: "a..b": a lowercase RFC 1123 subdomain`}},
		{"a revision of no object", "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\ndata: 1\n", []string{"data: Required value: data must be a valid JSON object"}},
		{"a policy of no direction", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nspec: {podSelector: {}, policyTypes: ['']}\n", []string{`spec.policyTypes[0]: Unsupported value: "": supported values: "Ingress", "Egress"`}},
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
	endpoints := "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: 010.0.0.1}]}]\n"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a selector becomes wrong", policy(good), policy(bad), []string{`spec.podSelector.matchExpressions[0].values[0]: Invalid value: "a b": a valid label`}},
		{"a selector that was wrong before", policy(bad), policy(bad), nil},
		{"an address with zeros that was there before", endpoints, endpoints, nil},
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
		if errs := s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), true); (len(errs) > 0) != again {
			t.Errorf("%s: %v", manifest, errs)
		}
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
	}
}
