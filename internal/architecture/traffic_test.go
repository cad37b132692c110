package architecture

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFlowsOfTheSameEndsAreAddedUp(t *testing.T) {
	now := time.Now()
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	web, api := End{Namespace: "n", Kind: "Deployment", Name: "web"}, Destination{End{Namespace: "n", Kind: "Deployment", Name: "api"}, 80, "TCP"}
	got := MergeFlows(now,
		[]Flow{
			{From: web, To: api, Verdict: Allowed, FirstSeen: at(time.Hour), LastSeen: at(time.Hour), Connections: 2},
			{From: End{Outside: true}, To: api, Verdict: Allowed, FirstSeen: at(48 * time.Hour), LastSeen: at(25 * time.Hour), Connections: 1},
		},
		[]Flow{
			{From: web, To: api, Verdict: Allowed, FirstSeen: at(time.Minute), LastSeen: at(0), Connections: 3},
			{From: web, To: api, Verdict: Denied, FirstSeen: at(0), LastSeen: at(0), Connections: 1},
		})
	if len(got) != 2 || got[0].Connections != 5 || !got[0].FirstSeen.Time.Equal(now.Add(-time.Hour)) || !got[0].LastSeen.Time.Equal(now) || got[1].Verdict != Denied {
		t.Errorf("%+v", got)
	}
}

func TestTheOldestFlowsGiveWay(t *testing.T) {
	now := time.Now()
	var many []Flow
	for i := range MaxFlows + 50 {
		seen := metav1.NewTime(now.Add(-time.Duration(i) * time.Second))
		many = append(many, Flow{From: End{Name: fmt.Sprint(i)}, Verdict: Allowed, FirstSeen: seen, LastSeen: seen})
	}
	got := MergeFlows(now, many)
	if len(got) != MaxFlows {
		t.Fatalf("%d entries", len(got))
	}
	for _, f := range got {
		if now.Sub(f.LastSeen.Time) >= MaxFlows*time.Second {
			t.Errorf("%s is kept", f.From.Name)
		}
	}
}
