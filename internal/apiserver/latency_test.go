package apiserver

import (
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/webhook"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

func TestAuditLogExplainsSlowRequests(t *testing.T) {
	// Each read of the audit log's clock is a second later: every request is slow.
	var seconds atomic.Int64
	s, sink := recorded(t)
	s.cfg.Audit.Now = func() time.Time { return time.Unix(seconds.Add(1), 0) }
	c := s.Client(auth.Component("tester"))
	config := webhook.Config{Client: c, Served: s.Served(), Authorizer: allowAll{}, Resolve: client.NewRoutes(t.Context(), c).Resolve}
	s.Use(Security{Authorizer: allowAll{}, Admission: admission.NewChain(nil, webhook.NewMutating(t.Context(), config), webhook.NewValidating(t.Context(), config))})
	h := newHookServer(t, allowed)
	mutate(t, c, admissionregistrationv1.MutatingWebhook{Name: "change.example.com", ClientConfig: h.at("/change")})
	validate(t, c, admissionregistrationv1.ValidatingWebhook{ClientConfig: h.at("/check")})
	last := func() map[string]string {
		list := sink.take()
		return list[len(list)-1].Annotations
	}
	wantParts := func(got map[string]string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if took, err := time.ParseDuration(got["apiserver.latency.k8s.io/"+part]); err != nil || took <= 0 {
				t.Errorf("%s: %v in %v", part, err, got)
			}
		}
	}
	_, over := overHTTP(t, s, "application/json")
	if _, err := over.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("slow"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantParts(last(), "total", "mutating-webhook", "validating-webhook", "etcd")
	if _, err := client.Create(t.Context(), c, configMap("within")); err != nil {
		t.Fatal(err)
	}
	wantParts(last(), "total", "mutating-webhook", "validating-webhook", "etcd")
	watch, err := over.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch.Stop()
	deadline := time.Now().Add(time.Minute)
	for ended := false; !ended; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end of the watch is not recorded")
		}
		for _, e := range sink.take() {
			ended = ended || e.Stage == auditv1.StageResponseComplete
			if e.Annotations["apiserver.latency.k8s.io/total"] != "" {
				t.Errorf("a watch is annotated as slow: %v", e.Annotations)
			}
		}
	}
}
