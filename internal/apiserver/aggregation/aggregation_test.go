package aggregation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func ptr[T any](v T) *T { return &v }

func TestAvailabilityDependsOnServiceAndEndpoints(t *testing.T) {
	ref := &apiregistrationv1.ServiceReference{Namespace: "default", Name: "s", Port: ptr(int32(443))}
	service := func(kind corev1.ServiceType, port int32) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Name: "https", Port: port}}}}
	}
	slices := func(port string, ready bool) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{{
			Ports:     []discoveryv1.EndpointPort{{Name: &port, Port: ptr(int32(5443))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}}
	}
	for name, tc := range map[string]struct {
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
		want    verdict
	}{
		"no service":                    {nil, nil, unavailable("ServiceNotFound", `service/s in "default" is not present`)},
		"another port":                  {service("ClusterIP", 444), nil, unavailable("ServicePortError", `service/s in "default" is not listening on port 443`)},
		"no endpoints":                  {service("ClusterIP", 443), nil, unavailable("EndpointsNotFound", `cannot find endpointslices for service/s in "default"`)},
		"no endpoint is ready":          {service("ClusterIP", 443), slices("https", false), unavailable("MissingEndpoints", `endpointslices for service/s in "default" have no addresses with port name "https"`)},
		"endpoints of another port":     {service("ClusterIP", 443), slices("http", true), unavailable("MissingEndpoints", `endpointslices for service/s in "default" have no addresses with port name "https"`)},
		"a ready endpoint":              {service("ClusterIP", 443), slices("https", true), passed},
		"a name outside of the cluster": {service("ExternalName", 1), nil, passed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := checkService(ref, tc.service, tc.slices); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestConditionKeepsTheTimeOfItsLastTransition(t *testing.T) {
	object := &apiregistrationv1.APIService{Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{{Type: "Other"}}}}
	at := func(s int64) metav1.Time { return metav1.Unix(s, 0) }
	if !setCondition(object, unavailable("A", "a"), at(1)) || !setCondition(object, unavailable("B", "b"), at(2)) {
		t.Fatal("a new reason is a change")
	}
	if c := object.Status.Conditions[1]; len(object.Status.Conditions) != 2 || c.Reason != "B" || c.LastTransitionTime != at(1) || available(object) {
		t.Errorf("got %+v", object.Status.Conditions)
	}
	if setCondition(object, unavailable("B", "b"), at(3)) {
		t.Error("nothing has changed")
	}
	if !setCondition(object, passed, at(4)) || object.Status.Conditions[1].LastTransitionTime != at(4) || !available(object) {
		t.Errorf("got %+v", object.Status.Conditions)
	}
}

func TestOnlyManagedAPIServicesAreCorrected(t *testing.T) {
	start, always := newLocal("a", "v1", 1, 1, managedStart), newLocal("c.io", "v1", 1000, 100, managedAlways)
	users := newLocal("u.io", "v1", 1, 1, "")
	users.Labels = nil
	bent := func(s *apiregistrationv1.APIService) *apiregistrationv1.APIService {
		s = s.DeepCopy()
		s.Spec.VersionPriority = 7
		return s
	}
	list := func(s ...*apiregistrationv1.APIService) []*apiregistrationv1.APIService { return s }
	for name, tc := range map[string]struct {
		have, wanted           []*apiregistrationv1.APIService
		starting               bool
		create, update, remove int
	}{
		"what is missing is made":                                   {nil, list(start, always), true, 2, 0, 0},
		"what is as it should be stays":                             {list(start, always), list(start, always), true, 0, 0, 0},
		"the table's are corrected at the start":                    {list(bent(start)), list(start), true, 0, 1, 0},
		"the table's are left alone afterwards":                     {list(bent(start)), nil, false, 0, 0, 0},
		"those of custom resources are corrected at any time":       {list(bent(always)), list(always), false, 0, 1, 0},
		"those of custom resources that are gone are removed":       {list(always), nil, false, 0, 0, 1},
		"those of groups that are not served any more are removed":  {list(start), nil, true, 0, 0, 1},
		"a user's is left alone, even where a definition wants one": {list(users), list(newLocal("u.io", "v1", 2, 2, managedAlways)), false, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := plan(tc.have, tc.wanted, tc.starting)
			if len(s.create) != tc.create || len(s.update) != tc.update || len(s.remove) != tc.remove {
				t.Errorf("got %+v", s)
			}
		})
	}
}

func TestServedCustomVersionsAreRegisteredOnce(t *testing.T) {
	definition := func(versions ...apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "c.io", Versions: versions}}
	}
	list := customServices([]*apiextensionsv1.CustomResourceDefinition{
		definition(apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true}, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2"}),
		definition(apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true}),
	})
	if len(list) != 1 || list[0].Name != "v1.c.io" || list[0].Spec.GroupPriorityMinimum != 1000 || list[0].Spec.VersionPriority != 100 {
		t.Errorf("got %+v", list)
	}
}

func TestBuiltInGroupsHaveUpstreamsPriorities(t *testing.T) {
	got := map[string][2]int32{}
	for _, s := range Local(nil) {
		got[s.Name] = [2]int32{s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority}
	}
	for name, want := range map[string][2]int32{
		"v1.": {18000, 1}, "v1.apps": {17800, 15}, "v2.autoscaling": {17500, 30}, "v1.autoscaling": {17500, 15},
		"v1.resource.k8s.io": {16200, 21}, "v1.flowcontrol.apiserver.k8s.io": {16100, 21},
	} {
		if got[name] != want {
			t.Errorf("%s has %v, want %v", name, got[name], want)
		}
	}
	if _, ok := got["v1.apiregistration.k8s.io"]; ok {
		t.Error("the aggregation layer registers itself")
	}
}
