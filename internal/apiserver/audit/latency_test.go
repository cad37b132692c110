package audit

import (
	"maps"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

// keeper is a Sink that keeps events.
type keeper struct{ events []*auditv1.Event }

func (k *keeper) Put(e *auditv1.Event) error { k.events = append(k.events, e); return nil }
func (k *keeper) Close() error               { return nil }

func TestSlowRequestsAreAnnotatedWithLatencies(t *testing.T) {
	for name, tc := range map[string]struct {
		took time.Duration
		do   func(*Record)
		want map[string]string
	}{
		"half a second is not slow": {took: 500 * time.Millisecond, do: func(rec *Record) { rec.AddLatency(Store, time.Second) }},
		"a slow one names the parts that took time, added up": {
			took: 700 * time.Millisecond,
			do: func(rec *Record) {
				rec.AddLatency(Store, 100*time.Millisecond)
				rec.AddLatency(Store, 20*time.Millisecond)
				rec.Webhooks(true, 300*time.Millisecond)
				rec.Webhooks(false, 200*time.Millisecond)
				rec.Webhooks(false, 150*time.Millisecond)
				rec.Webhooks(true, 10*time.Millisecond)
			},
			want: map[string]string{"total": "700ms", "etcd": "120ms", "mutating-webhook": "310ms", "validating-webhook": "200ms"},
		},
		"authentication was before the record": {
			took: 400 * time.Millisecond,
			do:   func(rec *Record) { rec.Authenticated(200 * time.Millisecond) },
			want: map[string]string{"total": "600ms", "authentication": "200ms"},
		},
		"what lives long is not slow": {took: time.Hour, do: (*Record).LongRunning},
	} {
		t.Run(name, func(t *testing.T) {
			kept, now := &keeper{}, time.Unix(1, 0)
			log := newLog(t, kept)
			log.Now = func() time.Time { return now }
			rec := log.Begin("id", &auth.Attributes{Verb: "get", Resource: "secrets"}, nil)
			now = now.Add(tc.took)
			rec.Stage(auditv1.StageResponseStarted, 200)
			tc.do(rec)
			rec.Stage(auditv1.StageResponseComplete, 200)
			want := map[string]string{}
			for part, took := range tc.want {
				want["apiserver.latency.k8s.io/"+part] = took
			}
			if len(kept.events[0].Annotations) != 0 {
				t.Errorf("before its end: %v", kept.events[0].Annotations)
			}
			if got := kept.events[1].Annotations; !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
