package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

func TestAdminAccessToDevicesNeedsALabelledNamespace(t *testing.T) {
	yes := true
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AdminAccess: &yes}},
	}}}
	given := &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: spec}
	given.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "other"}, {Request: "r", AdminAccess: &yes}}}}
	type write struct {
		operation        Operation
		kind, resource   string
		sub              string
		object, previous client.Object
	}
	claim := func(o Operation, sub string, obj, old client.Object) write {
		return write{o, "ResourceClaim", "resourceclaims", sub, obj, old}
	}
	for name, tc := range map[string]struct {
		write   write
		refused bool
		path    string
	}{
		"a claim with admin access":         {claim(Create, "", &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: spec}, nil), true, "spec.devices.requests[0].adminAccess"},
		"a claim without admin access":      {claim(Create, "", &resourcev1.ResourceClaim{ObjectMeta: meta}, nil), false, ""},
		"a template with admin access":      {write{Create, "ResourceClaimTemplate", "resourceclaimtemplates", "", &resourcev1.ResourceClaimTemplate{ObjectMeta: meta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}}, nil}, true, "spec.devices.requests[0].adminAccess"},
		"a status that grants admin access": {claim(Update, "status", given, &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: spec}), true, "status.allocation.devices.results[1].adminAccess"},
		"a status that already granted it":  {claim(Update, "status", given, given), false, ""},
		"a label change of a claim":         {claim(Update, "", given, given), false, ""},
	} {
		for label, refused := range map[string]bool{"true": false, "false": tc.refused, "": tc.refused} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"resource.kubernetes.io/admin-access": label}}}
			chain, err := Default(t.Context(), clienttest.NewMemory(ns), Config{Disable: []string{"ServiceAccount"}, Authorizer: auth.Masters{}})
			if err != nil {
				t.Fatal(err)
			}
			w := tc.write
			a := &Attributes{User: auth.Component("tester", auth.GroupMasters), Operation: w.operation, Kind: resourcev1.SchemeGroupVersion.WithKind(w.kind), Resource: resourcev1.SchemeGroupVersion.WithResource(w.resource),
				Subresource: w.sub, Object: w.object, Namespace: "ns", Name: "c", Warn: func(string) {}, Annotate: func(string, string) {}}
			if w.previous != nil {
				a.OldObject = w.previous
			}
			errs, err := chain.ValidateFields(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			const text = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
			if (len(errs) > 0) != refused || refused && (errs[0].Detail != text || errs[0].Field != tc.path) {
				t.Errorf("%s, label %q: %v", name, label, errs)
			}
		}
	}
}
