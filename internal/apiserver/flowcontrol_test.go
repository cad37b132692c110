package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// newSmallGateServer is a server with few seats, whose levels are loaded.
func newSmallGateServer(t *testing.T) (*Server, string) {
	s := newTestServer(t, func(c *Config) { c.MaxRequests = 8 })
	url, _, _ := running(t, s)
	eventually(t, func() error {
		if resp, _ := fetch(t, url+"/api/v1/nodes"); resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == "" {
			return fmt.Errorf("flow control is not configured yet")
		}
		return nil
	})
	return s, url
}

func TestRequestsBeyondTheSeatsAreRefusedOrWait(t *testing.T) {
	s, url := newSmallGateServer(t)
	// Anonymous requests match the schema global-default; give its level one seat and no queue.
	level, err := client.Get[*flowcontrolv1.PriorityLevelConfiguration](t.Context(), s.ownClient(), "", "global-default")
	if err != nil {
		t.Fatal(err)
	}
	none := int32(0)
	level.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = "false"
	level.Spec.Limited.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
	level.Spec.Limited.BorrowingLimitPercent, level.Spec.Limited.LendablePercent = &none, &none
	if _, err = client.Update(t.Context(), s.ownClient(), level); err != nil {
		t.Fatal(err)
	}
	var sending sync.WaitGroup
	t.Cleanup(sending.Wait)
	sending.Go(func() {
		// The request holds its seat while it sends; at first another request may have it.
		for ; t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			body, send := io.Pipe()
			// An aborted request does not end before its read of the body.
			stop := context.AfterFunc(t.Context(), func() { _ = send.Close() })
			sending.Go(func() { _, _ = io.WriteString(send, "{") })
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/namespaces/default/configmaps", body)
			if err != nil {
				panic(err)
			}
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
			stop()
			_ = body.Close()
		}
	})
	var resp *http.Response
	var text string
	eventually(t, func() error {
		if resp, text = fetch(t, url+"/api/v1/nodes"); resp.StatusCode != http.StatusTooManyRequests {
			return fmt.Errorf("got %s", resp.Status)
		}
		return nil
	})
	if resp.Header.Get("Retry-After") != "1" || text != "Too many requests, please try again later.\n" || resp.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") != string(level.UID) {
		t.Errorf("%v %q", resp.Header, text)
	}
	_, text = fetch(t, url+"/livez") // it has another level, as have the cluster's own requests
	if text != "ok" {
		t.Errorf("the health check returned %q", text)
	}
	eventually(t, func() error {
		var page strings.Builder
		if _, err := s.flow.gate.Show(&page, "dump_priority_levels", false); err != nil || !strings.Contains(page.String(), "global-default") {
			return fmt.Errorf("%v %s", err, page.String())
		}
		return nil
	})
}

func TestDanglingSchemasAreMarkedAndMandatoryOnesRestored(t *testing.T) {
	s, _ := newSmallGateServer(t)
	c := s.Client(auth.Component("admin"))
	reason := func(name, want string) func() error {
		return func() error {
			o, err := client.Get[*flowcontrolv1.FlowSchema](t.Context(), c, "", name)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(o.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
				return c.Type == flowcontrolv1.FlowSchemaConditionDangling && c.Reason == want
			}) {
				return fmt.Errorf("conditions of %s: %+v", name, o.Status.Conditions)
			}
			return nil
		}
	}
	eventually(t, reason("service-accounts", "Found"))
	lost := &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 5, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "none"}}}
	lost.Name = "lost"
	if _, err := client.Create(t.Context(), c, lost); err != nil {
		t.Fatal(err)
	}
	eventually(t, reason("lost", "NotFound"))
	_, _, body := do(t, s, "GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/lost", "")
	if want := `"manager":"api-priority-and-fairness-config-consumer-v1","operation":"Apply"`; !strings.Contains(body, want) || !strings.Contains(body, `"subresource":"status"`) {
		t.Errorf("the conditions do not belong to their managers: %s", body)
	}
	// The condition of another manager stays when ours changes.
	const path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/lost"
	if code, _, answer := do(t, s, "PATCH", path+"/status?fieldManager=another", `{"status":{"conditions":[{"type":"Theirs","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","reason":"R","message":"m"}]}}`,
		"Content-Type", "application/strategic-merge-patch+json"); code != http.StatusOK {
		t.Fatal(code, answer)
	}
	if code, _, answer := do(t, s, "PATCH", path, `{"spec":{"priorityLevelConfiguration":{"name":"global-default"}}}`, "Content-Type", "application/merge-patch+json"); code != http.StatusOK {
		t.Fatal(code, answer)
	}
	eventually(t, reason("lost", "Found"))
	changed, err := client.Get[*flowcontrolv1.FlowSchema](t.Context(), c, "", "lost")
	if err != nil || len(changed.Status.Conditions) != 2 {
		t.Fatalf("%+v, %v", changed.Status, err)
	}
	for _, m := range changed.ManagedFields {
		if owns := strings.Contains(string(m.FieldsV1.Raw), "Theirs"); owns != (m.Manager == "another") {
			t.Errorf("%s owns another's condition: %v", m.Manager, owns)
		}
	}
	suggested, err := client.Get[*flowcontrolv1.FlowSchema](t.Context(), c, "", "service-accounts")
	if err != nil {
		t.Fatal(err)
	}
	suggested.Spec.MatchingPrecedence = 77
	if _, err := client.Update(t.Context(), c, suggested); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		o, err := client.Get[*flowcontrolv1.FlowSchema](t.Context(), c, "", "service-accounts")
		if err != nil || o.Spec.MatchingPrecedence != 9000 {
			return fmt.Errorf("precedence %d, %v", o.Spec.MatchingPrecedence, err)
		}
		return nil
	})
}

func TestConditionWritesAreLimited(t *testing.T) {
	writes, start := conditionWrites{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for i := range maxConditionWrites {
		if wait := writes.wait("a", at(i)); wait != 0 {
			t.Fatalf("write %d waits %v", i, wait)
		}
		writes["a"] = append(writes["a"], at(i))
	}
	for seconds, want := range map[int]time.Duration{10: 50 * time.Second, 59: time.Second} {
		if wait := writes.wait("a", at(seconds)); wait != want {
			t.Errorf("after %d s it waits %v, want %v", seconds, wait, want)
		}
	}
	if wait := writes.wait("b", at(10)); wait != 0 {
		t.Errorf("another schema waits %v", wait)
	}
	if wait := writes.wait("a", at(60)); wait != 0 {
		t.Errorf("a minute after the first write it waits %v", wait)
	}
	if wait := writes.wait("a", at(200)); wait != 0 || len(writes) != 0 {
		t.Errorf("later it waits %v and keeps %v", wait, writes)
	}
}
