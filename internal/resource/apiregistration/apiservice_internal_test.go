package apiregistration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestAPIServicesNameTheirGroupAndService(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	remote := func(change func(*apiregistrationv1.APIServiceSpec)) apiregistrationv1.APIServiceSpec {
		spec := apiregistrationv1.APIServiceSpec{Group: "x.io", Version: "v1", GroupPriorityMinimum: 1, VersionPriority: 1,
			Service: &apiregistrationv1.ServiceReference{Namespace: "n", Name: "s", Port: number(443)}}
		change(&spec)
		return spec
	}
	for name, tc := range map[string]struct {
		object string
		spec   apiregistrationv1.APIServiceSpec
		want   []string // substrings of the errors, in order
	}{
		"a remote API service": {"v1.x.io", remote(func(*apiregistrationv1.APIServiceSpec) {}), nil},
		"the core group":       {"v1.", apiregistrationv1.APIServiceSpec{Version: "v1", GroupPriorityMinimum: 18000, VersionPriority: 1}, nil},
		"nothing": {"x", apiregistrationv1.APIServiceSpec{}, []string{"metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \".\"",
			"spec.group: Required value: only v1 may have an empty group", "spec.version: Invalid value", "spec.groupPriorityMinimum", "spec.versionPriority"}},
		"priorities too high": {"v1.x.io", remote(func(s *apiregistrationv1.APIServiceSpec) { s.GroupPriorityMinimum, s.VersionPriority = 20001, 1001 }),
			[]string{"must be positive and less than 20000", "must be positive and less than 1000"}},
		"a CA bundle for a local API service": {"v1.x.io", remote(func(s *apiregistrationv1.APIServiceSpec) {
			s.Service, s.CABundle, s.InsecureSkipTLSVerify = nil, []byte("abc"), true
		}), []string{`"3 bytes": local APIServices may not have a caBundle`, "local APIServices may not have insecureSkipTLSVerify"}},
		"a CA bundle with insecureSkipTLSVerify": {"v1.x.io", remote(func(s *apiregistrationv1.APIServiceSpec) { s.CABundle, s.InsecureSkipTLSVerify = []byte("abc"), true }),
			[]string{"may not be true if caBundle is present"}},
		"a service without name": {"v1.x.io", remote(func(s *apiregistrationv1.APIServiceSpec) {
			s.Service = &apiregistrationv1.ServiceReference{Port: number(70000)}
		}), []string{"spec.service.namespace: Required", "spec.service.name: Required", "port is not valid: must be between 1 and 65535, inclusive"}},
	} {
		t.Run(name, func(t *testing.T) {
			errs := validateAPIService(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: tc.object}, Spec: tc.spec})
			if len(errs) != len(tc.want) {
				t.Fatalf("got %v", errs)
			}
			for i, want := range tc.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("got %v, want %s", errs[i], want)
				}
			}
		})
	}
}
