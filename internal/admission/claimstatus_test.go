package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// recordingAuthorizer is an authorizer that records the checked permissions and grants the given
// ones.
type recordingAuthorizer struct {
	given []string
	list  []string
}

func (k *recordingAuthorizer) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	text := strings.Join([]string{a.Verb, a.Resource + "/" + a.Subresource, a.Namespace, a.Name}, " ")
	k.list = append(k.list, text)
	if slices.Contains(k.given, text) {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "", nil
}

// The wanted checks and answers are those of upstream's API server v1.36.3.
func TestEachPartOfAClaimStatusNeedsItsPermission(t *testing.T) {
	const binding, onNode, anywhere = "update resourceclaims/binding  ", "associated-node:update resourceclaims/driver ns d1", "arbitrary-node:update resourceclaims/driver ns d1"
	allocation := func(node string) *resourcev1.AllocationResult {
		r := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "d1", Pool: "p", Device: "a"}}}}
		if node != "" {
			r.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{node}}}}}}
		}
		return r
	}
	devices := func(drivers ...string) (list []resourcev1.AllocatedDeviceStatus) {
		for _, d := range drivers {
			list = append(list, resourcev1.AllocatedDeviceStatus{Driver: d, Pool: "p", Device: "a"})
		}
		return list
	}
	reserved := []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	wider := allocation("w1")
	wider.NodeSelector.NodeSelectorTerms[0].MatchExpressions = []corev1.NodeSelectorRequirement{{Key: "x", Operator: "Exists"}}
	driver := auth.User{Name: "system:serviceaccount:ns:driver", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"w1"}}}
	person := auth.User{Name: "bob", Extra: driver.Extra}
	type status = resourcev1.ResourceClaimStatus
	for name, tc := range map[string]struct {
		user     auth.User
		verb     string
		old, now status
		given    []string
		asked    []string
		refusal  string
	}{
		"an allocation": {person, "update", status{}, status{Allocation: allocation("w1")}, nil, []string{binding},
			`status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User "bob" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`},
		"an allocation with permission": {person, "update", status{}, status{Allocation: allocation("w1")}, []string{binding}, []string{binding}, ""},
		"a reservation by a patch":      {person, "patch", status{Allocation: allocation("w1")}, status{Allocation: allocation("w1"), ReservedFor: reserved}, nil, []string{"patch resourceclaims/binding  "}, `verb="patch"`},
		"no change":                     {person, "update", status{Allocation: allocation("w1"), Devices: devices("d1", "d2")}, status{Allocation: allocation("w1"), Devices: devices("d2", "d1")}, nil, nil, ""},
		"devices, by a person": {person, "update", status{Allocation: allocation("w1")}, status{Allocation: allocation("w1"), Devices: devices("d1")}, nil, []string{anywhere},
			`status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: resourceclaims.resource.k8s.io "d1" is forbidden: User "bob" cannot arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "ns"`},
		"devices, by the driver on their node": {driver, "update", status{Allocation: allocation("w1")}, status{Allocation: allocation("w1"), Devices: devices("d1")}, []string{onNode}, []string{onNode}, ""},
		"devices, by a driver without permission": {driver, "update", status{Allocation: allocation("w1")}, status{Allocation: allocation("w1"), Devices: devices("d1")}, nil, []string{onNode, anywhere},
			`verb="[associated-node:update arbitrary-node:update]" permission: resourceclaims.resource.k8s.io "d1" is forbidden: User "system:serviceaccount:ns:driver" cannot associated-node:update`},
		"devices, by a driver for all nodes":    {driver, "update", status{Allocation: allocation("w1")}, status{Allocation: allocation("w1"), Devices: devices("d1")}, []string{anywhere}, []string{onNode, anywhere}, ""},
		"devices of another node":               {driver, "update", status{Allocation: allocation("w2")}, status{Allocation: allocation("w2"), Devices: devices("d1")}, []string{onNode}, []string{anywhere}, "arbitrary-node:update"},
		"devices of no node":                    {driver, "update", status{Allocation: allocation("")}, status{Allocation: allocation(""), Devices: devices("d1")}, []string{onNode}, []string{anywhere}, "arbitrary-node:update"},
		"devices of nodes with a label":         {driver, "update", status{Allocation: wider}, status{Allocation: wider, Devices: devices("d1")}, []string{onNode}, []string{anywhere}, "arbitrary-node:update"},
		"only changed drivers are checked":      {driver, "update", status{Allocation: allocation("w1"), Devices: devices("d1", "d2")}, status{Allocation: allocation("w1"), Devices: devices("d2")}, []string{onNode}, []string{onNode}, ""},
		"devices removed with their allocation": {person, "update", status{Allocation: allocation("w1"), Devices: devices("d1")}, status{}, []string{binding}, []string{binding}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			z := &recordingAuthorizer{given: tc.given}
			claim := func(s status) *resourcev1.ResourceClaim {
				return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Status: s}
			}
			errs, err := newClaimStatus(z).(FieldValidator).ValidateFields(t.Context(), &Attributes{User: tc.user, Operation: Update, Verb: tc.verb, Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"),
				Resource: resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), Subresource: "status", Namespace: "ns", Name: "c", Object: claim(tc.now), OldObject: claim(tc.old)})
			if err != nil {
				t.Fatal(err)
			}
			err = errs.ToAggregate()
			if !slices.Equal(z.list, tc.asked) {
				t.Errorf("checked %q, want %q", z.list, tc.asked)
			}
			if tc.refusal == "" && err != nil || tc.refusal != "" && (err == nil || !strings.Contains(err.Error(), tc.refusal)) {
				t.Errorf("got %v, want %q", err, tc.refusal)
			}
		})
	}
}
