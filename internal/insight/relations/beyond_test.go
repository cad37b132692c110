package relations

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/knarr-project/knarr/internal/architecture"
)

// outsideLines returns the lines of the text about connections from a component to the outside.
func outsideLines(t *testing.T, objects []runtime.Object, flows ...architecture.Flow) string {
	t.Helper()
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	traffic := architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	for _, f := range flows {
		f.From = architecture.End{Namespace: "shop", Kind: "Deployment", Name: "worker"}
		f.To.Outside, f.To.Port, f.To.Protocol, f.Verdict, f.FirstSeen, f.LastSeen, f.Connections = true, 443, "TCP", architecture.Allowed, now, now, 2
		traffic.Entries = append(traffic.Entries, f)
	}
	u, err := traffic.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	o, unread, err := Read(t.Context(), fake.NewClientset(append(shop(t), objects...)...), custom(t, u), "shop")
	if err != nil || len(unread) > 0 {
		t.Fatal(err, unread)
	}
	var text bytes.Buffer
	if err := Derive(o).Text(&text, false); err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, "→ outside") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "\n")
}

func TestAddressesBeyondTheClusterAreShown(t *testing.T) {
	legacy := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "legacy"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "legacy-1", Labels: map[string]string{discoveryv1.LabelServiceName: "legacy"}},
		AddressType: discoveryv1.AddressTypeIPv6, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"2001:DB8:0::7"}}, {Addresses: []string{"203.0.113.7"}}}}
	services := []runtime.Object{legacy, slice}
	worker := architecture.Flow{Addresses: []string{"2001:db8::7", "203.0.113.7"}}
	for _, c := range []struct {
		name, want string
		objects    []runtime.Object
		addresses  []string
	}{
		{"a Service without selector", "→ outside  by Service shop/legacy  at 2001:db8::7, 203.0.113.7  [seen 2]", services, worker.Addresses},
		{"addresses alone", "→ outside  at 2001:db8::7, 203.0.113.7  [seen 2]", nil, worker.Addresses},
		{"another address too", "→ outside  at 2001:db8::7, 203.0.113.8  [seen 2]", services, []string{"2001:db8::7", "203.0.113.8"}},
		{"many addresses", "→ outside  at 203.0.113.1, 203.0.113.2, 203.0.113.3, …  [seen 2]", nil, []string{"203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"}},
		{"unknown addresses", "→ outside  [seen 2]", services, nil},
	} {
		if got := outsideLines(t, c.objects, architecture.Flow{Addresses: c.addresses}); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

func TestTheHostOfAnExternalServiceIsShown(t *testing.T) {
	mail := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mail"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "mail.example"}}
	sender := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sender"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "MAIL_HOST", Value: "mail"}}}}}}
	if got, want := outsideLines(t, []runtime.Object{mail, sender}), "→ outside  by Service shop/mail  at mail.example"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
