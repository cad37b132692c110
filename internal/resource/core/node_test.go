package core_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestConfigOfNodeStatusIsDropped(t *testing.T) {
	old, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Node\n")
	for name, prepare := range map[string]func(obj runtime.Object){
		"create": s.PrepareCreate, "status": func(obj runtime.Object) { s.PrepareStatus(obj, old) },
	} {
		obj, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Node\nstatus: {config: {error: a}}\n")
		if prepare(obj); obj.(*corev1.Node).Status.Config != nil {
			t.Errorf("%s keeps the state of the node's configuration", name)
		}
	}
}

func TestDeclaredFeaturesOfNodesAreSorted(t *testing.T) {
	old, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Node\n")
	obj, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Node\nstatus: {declaredFeatures: [Bb, Aa]}\n")
	resourcetest.Expect(t, s.ValidateStatus(obj, old), `status.declaredFeatures[1]: Invalid value: "Aa": list must be sorted alphabetically`)
}

func TestAllocatableDefaultsToCapacity(t *testing.T) {
	for _, more := range []string{"", ", allocatable: {}"} {
		obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Node\nstatus: {capacity: {cpu: '2'}"+more+"}\n")
		s.Default(obj)
		if cpu := obj.(*corev1.Node).Status.Allocatable.Cpu(); cpu.Value() != 2 {
			t.Errorf("allocatable%s: %v", more, cpu)
		}
	}
}

func TestFieldsOfNewNodesAreValidated(t *testing.T) {
	meta := func(kind string) string {
		versions := map[string]string{"Ingress": "networking.k8s.io/v1", "IngressClass": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1", "ServiceCIDR": "networking.k8s.io/v1", "IPAddress": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
		version := versions[kind]
		if version == "" {
			version = "v1"
		}
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n", version, kind)
	}
	cases := []struct {
		name, kind, body string
		want             []string
	}{
		{"a repeated taint", "Node", "spec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}", []string{"taints must be unique by key and effect pair"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewNodesAreValidated(t *testing.T) {
	node := func(rest string) string { return "apiVersion: v1\nkind: Node\n" + rest + "\n" }
	declaring := func(features string) string {
		return "apiVersion: v1\nkind: Node\nstatus: {declaredFeatures: [" + features + "]}\n"
	}
	const name = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a swap capacity of zero", "apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {swap: {capacity: 0}}}\n", []string{"metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"}},
		{"two ranges, one invalid", node("spec: {podCIDR: 10.9.0.0/24, podCIDRs: [10.9.0.0/24, b]}"), []string{"spec.podCIDRs[1]: Invalid value", "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]", "spec.podCIDRs: Invalid value"}},
		{"a node with a negative capacity", node("status: {capacity: {pods: -1}}"), []string{`status.capacity.pods: Invalid value: "-1"`, `status.allocatable.pods: Invalid value: "-1"`}},
		{"features of a node", declaring("A, AB, Aa/b, Bb/Bc/d1, " + strings.Repeat("C", 253)), nil},
		{"a feature in lower case", declaring("a"), []string{`status.declaredFeatures[0]: Invalid value: "a": invalid feature name "a": ` + name}},
		{"a feature with a numeric segment", declaring("Aa/1"), []string{`invalid feature name "Aa/1": ` + name}},
		{"a feature with an empty last segment", declaring("Aa/"), []string{`invalid feature name "Aa/": ` + name}},
		{"a feature that is too long and invalid", declaring(strings.Repeat("a", 254)), []string{"must be no more than 253 characters"}},
		{"unsorted features", declaring("Bb, Aa, Bb"), []string{`status.declaredFeatures[1]: Invalid value: "Aa": list must be sorted alphabetically`}},
		{"a repeated feature in unsorted order", declaring("Bb, Bb, ''"), []string{`status.declaredFeatures[1]: Duplicate value: "Bb"`, `status.declaredFeatures[2]: Invalid value: "": list must be sorted alphabetically`, `invalid feature name "": ` + name}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfNodesAreValidated(t *testing.T) {
	node := "apiVersion: v1\nkind: Node\nstatus: {addresses: [{type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: 10.0.0.1}]}\n"
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a node with a repeated address", node, node, []string{"status.addresses[1]: Duplicate value"}},
		{"a changed externalID", "apiVersion: v1\nkind: Node\nspec: {externalID: a}\n", "apiVersion: v1\nkind: Node\nspec: {externalID: b}\n", []string{"spec.externalID: Forbidden: may not be updated"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestUpdatesOfNodesKeepFields(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"a node's range", "{apiVersion: v1, kind: Node, metadata: {name: x}, spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24]}}", "{apiVersion: v1, kind: Node, metadata: {name: x}, spec: {podCIDR: 10.0.1.0/24, podCIDRs: [10.0.1.0/24]}}", []string{"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "---\n"+c.before)
			obj, _ := resourcetest.Read(t, rules.For, "---\n"+c.after)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestWarningsOfNodes(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a node with a range in a long form", "apiVersion: v1\nkind: Node\nspec: {podCIDRs: ['1:0::/64'], externalID: x}\n", []string{
			"spec.externalID: this field is deprecated, and is unused by Kubernetes", `spec.podCIDRs[0]: IPv6 CIDR value "1:0::/64" should be in RFC 5952 canonical format ("1::/64")`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
