package api

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Keys and their meaning are kube-apiserver's.
func TestSwitchesSelectTheServedResources(t *testing.T) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	daemonSets := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	autoscalers := schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}
	for name, tc := range map[string]struct {
		list string
		on   []schema.GroupVersionResource
		off  []schema.GroupVersionResource
	}{
		"no switches":                        {"", []schema.GroupVersionResource{deployments, daemonSets, pods, autoscalers}, nil},
		"a version of a group":               {"apps/v1=false", []schema.GroupVersionResource{pods}, []schema.GroupVersionResource{deployments, daemonSets}},
		"one of two versions":                {"autoscaling/v1=false", []schema.GroupVersionResource{autoscalers.GroupResource().WithVersion("v2")}, []schema.GroupVersionResource{autoscalers}},
		"a resource":                         {"apps/v1/deployments=false", []schema.GroupVersionResource{daemonSets}, []schema.GroupVersionResource{deployments}},
		"a resource of the core group":       {"v1/pods=0", []schema.GroupVersionResource{pods.GroupVersion().WithResource("nodes")}, []schema.GroupVersionResource{pods}},
		"the core group":                     {"v1=false", []schema.GroupVersionResource{deployments}, []schema.GroupVersionResource{pods}},
		"the core group, its path":           {"api/v1=false", nil, []schema.GroupVersionResource{pods}},
		"everything but one version":         {"apps/v1=true,api/all=false,apiregistration.k8s.io/v1", []schema.GroupVersionResource{deployments}, []schema.GroupVersionResource{pods}},
		"everything but one resource":        {"apps/v1/daemonsets=true,api/ga=false,apiregistration.k8s.io/v1=1", []schema.GroupVersionResource{daemonSets}, []schema.GroupVersionResource{deployments}},
		"turning off what is off by default": {"api/beta=false,api/alpha=false,storage.k8s.io/v1beta1=false,storagemigration.k8s.io/v1beta1=false", []schema.GroupVersionResource{pods}, nil},
		"turning on what is on by default":   {"api/ga=true,v1=true", []schema.GroupVersionResource{pods}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSwitches(strings.FieldsFunc(tc.list, func(r rune) bool { return r == ',' }))
			if err != nil {
				t.Fatal(err)
			}
			for _, gvr := range tc.on {
				if !s.Serves(gvr) {
					t.Errorf("%s is off", gvr)
				}
			}
			for _, gvr := range tc.off {
				if s.Serves(gvr) {
					t.Errorf("%s is on", gvr)
				}
			}
		})
	}
}

func TestUnknownSwitchesAreRefused(t *testing.T) {
	for list, want := range map[string]string{
		"nope/v1=true":           "unknown api groups nope/v1",
		"api/foo=true":           "unknown api groups api/foo",
		"apps/v9=true":           "group version apps/v9 that has not been registered",
		"apps/v9=false":          "group version apps/v9 that has not been registered",
		"apps/v1=x":              "invalid value of apps/v1",
		"foo=true":               "runtime-config invalid key foo",
		"a/b/c/d=true":           "runtime-config invalid key a/b/c/d",
		"api/all=false":          "API group/version apiregistration.k8s.io/v1 must be enabled",
		"api/beta=true":          "this server does not have the APIs that are off by default",
		"storage.k8s.io/v1beta1": "it is not in this server",
		"apps/v1/nope=false":     "there is no resource nope in apps/v1",
	} {
		if _, err := ParseSwitches([]string{list}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", list, err, want)
		}
	}
}

func TestKindsOfAFeatureGateAreServedIfBothAreOn(t *testing.T) {
	groups := schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"}
	kind, _ := ByResource(groups.GroupResource())
	parse := func(gates []string, list ...string) *Switches {
		s, err := ParseSwitches(list, gates...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	on := []string{"GenericWorkload"}
	for name, c := range map[string]struct {
		s    *Switches
		want bool
	}{
		"by default":           {nil, false},
		"with the gate alone":  {parse(on), false},
		"with other versions":  {parse(on, "api/ga=true", "apps/v1=true"), false},
		"with the version":     {parse(on, "scheduling.k8s.io/v1alpha2=true"), true},
		"with the resource":    {parse(on, "scheduling.k8s.io/v1alpha2/podgroups"), true},
		"with the other one":   {parse(on, "scheduling.k8s.io/v1alpha2/workloads"), false},
		"without the resource": {parse(on, "scheduling.k8s.io/v1alpha2=true", "scheduling.k8s.io/v1alpha2/podgroups=false"), false},
	} {
		if got := c.s.Serves(groups); got != c.want || (len(c.s.Versions(kind)) > 0) != c.want {
			t.Errorf("%s: PodGroups are served: %v, versions %v", name, got, c.s.Versions(kind))
		}
	}
	if _, err := ParseSwitches([]string{"scheduling.k8s.io/v1alpha2=true"}); err == nil || !strings.Contains(err.Error(), "needs the feature gate GenericWorkload=true") {
		t.Errorf("without the gate: %v", err)
	}
}
