package resource

import (
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

// hubOf returns the kind whose hub type the strategy of k works on.
func hubOf(k *api.Kind) *api.Kind {
	if k.Alias != (schema.GroupResource{}) {
		target, _ := api.ByResource(k.Alias)
		return target
	}
	return k
}

func newFiller(seed int64) *randfill.Filler {
	return randfill.New().RandSource(rand.NewSource(seed)).NilChance(.4).NumElements(1, 2).MaxDepth(14).Funcs(
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = metav1.Unix(c.Int63n(1<<31), 0).Time },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewScaledQuantity(c.Int63n(100000)-1000, resource.Micro)
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			*i = intstr.FromInt32(c.Int31n(3))
			if c.Bool() {
				*i = intstr.FromString("x")
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:a":{}}`) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
	)
}

func TestRowsFitTheColumnsOfRandomObjects(t *testing.T) {
	for gr, s := range strategies {
		k, _ := api.ByResource(gr)
		k = hubOf(k)
		if s.Row == nil || len(s.Columns) == 0 {
			t.Errorf("%s has no columns", gr)
			continue
		}
		for seed := range int64(15) {
			obj := k.New()
			if seed > 0 {
				newFiller(seed).Fill(obj)
			}
			cells := s.Row(obj, resourcetest.Now)
			if gr.Resource == "ipaddresses" {
				// The row has an age without a column, as upstream's has.
				cells = cells[:len(s.Columns)]
			}
			if len(cells) != len(s.Columns) {
				t.Fatalf("%s: %d cells for %d columns", gr, len(cells), len(s.Columns))
			}
			for i, c := range cells {
				ok := false
				switch c.(type) {
				case string:
					ok = s.Columns[i].Type == "string" || s.Columns[i].Type == "date" || s.Columns[i].Name == "Suspend"
				case int64:
					// Upstream declares many numbers as strings.
					ok = s.Columns[i].Type == "integer" || s.Columns[i].Type == "string"
				case bool:
					ok = s.Columns[i].Type == "boolean" || s.Columns[i].Type == "string"
				}
				if !ok {
					t.Fatalf("%s: column %s of type %s has a cell %#v", gr, s.Columns[i].Name, s.Columns[i].Type, c)
				}
			}
		}
	}
}

// The wanted cells are upstream's.
func TestUnknownValuesHaveTheirOwnCells(t *testing.T) {
	cases := []struct {
		name, manifest string
		column         int
		want           string
	}{
		{"a node with only an architecture", "apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {architecture: arm64}}\n", 8, "<unknown> (arm64)"},
		{"a node with only a kernel version", "apiVersion: v1\nkind: Node\nstatus: {nodeInfo: {kernelVersion: '6'}}\n", 8, "6"},
		{"a node without system info", "apiVersion: v1\nkind: Node\n", 8, columns.Unknown},
		{"no endpoints", "apiVersion: v1\nkind: Endpoints\n", 1, columns.None},
		{"unready endpoints", "apiVersion: v1\nkind: Endpoints\nsubsets: [{notReadyAddresses: [{ip: 1.1.1.1}], ports: [{port: 80}]}]\n", 1, ""},
		{"endpoints of two ports", "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: 1.1.1.1}, {ip: 1.1.1.2}], ports: [{port: 80}, {port: 81}]}]\n", 1, "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more..."},
		{"a slice without ports", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n", 2, columns.Unset},
		{"a slice with an empty port", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nports: [{}]\n", 2, columns.Unset},
		{"a parameter in the namespace of the write", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nspec: {paramRef: {name: a}}\n", 2, "*/a"},
		{"parameters by a selector", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nspec: {paramRef: {selector: {matchLabels: {a: b}}}}\n", 2, "a=b"},
		{"a level without limits", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nspec: {type: Exempt, exempt: {nominalConcurrencyShares: 5}}\n", 2, columns.None},
		{"a slice with an empty port and others", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nports: [{}, {name: x}, {name: w, port: 80}]\n", 2, ",x,80"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, For, c.manifest)
			if row := s.Row(obj, resourcetest.Now); row[c.column] != c.want {
				t.Errorf("got %q, want %q", row[c.column], c.want)
			}
		})
	}
}
