package traffic

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/architecture"
)

// report sends the unsent connections if one of them is of a new flow, or if the last update is old
// enough. object is the node's Traffic.
func (a *Agent) report(ctx context.Context, object runtime.Object) error {
	due := time.Since(a.sent) >= a.cfg.Report
	for f, n := range a.unsent {
		due = due || n.allowed > 0 && !a.known[verdict{f, false}] || n.denied > 0 && !a.known[verdict{f, true}]
	}
	if !due || len(a.unsent) == 0 {
		return nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	update := architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion()}}
	now := metav1.Now()
	var reported []flow
	for f, n := range a.unsent {
		if len(update.Entries)+2 > architecture.MaxFlows {
			break // the rest follows with the next update
		}
		reported = append(reported, f)
		entry := f.entry()
		entry.FirstSeen, entry.LastSeen = metav1.NewTime(a.first[f]), now
		if n.allowed > 0 {
			entry.Verdict, entry.Connections = architecture.Allowed, int64(n.allowed)
			update.Entries = append(update.Entries, entry)
		}
		if n.denied > 0 {
			entry.Verdict, entry.Connections = architecture.Denied, int64(n.denied)
			update.Entries = append(update.Entries, entry)
		}
	}
	u, err := update.Unstructured()
	if err != nil {
		return err
	}
	if _, err := a.cfg.Client.Update(ctx, architecture.Traffics, u, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for _, f := range reported {
		n := a.unsent[f]
		if n.allowed > 0 {
			a.known[verdict{f, false}] = true
		}
		if n.denied > 0 {
			a.known[verdict{f, true}] = true
		}
		delete(a.unsent, f)
		delete(a.first, f)
	}
	a.sent = time.Now()
	return nil
}

var protocols = map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}

// entry returns the flow with its ends as addresses.
func (f flow) entry() architecture.Flow {
	e := architecture.Flow{From: end(f.from), To: architecture.Destination{End: end(f.to), Port: int32(f.port), Protocol: protocols[f.protocol]}}
	if f.via.IsValid() {
		e.Via = netip.AddrPortFrom(f.via, f.viaPort).String()
	}
	return e
}

func end(addr netip.Addr) architecture.End {
	if addr.IsUnspecified() {
		return architecture.End{Outside: true}
	}
	return architecture.End{Address: addr.String()}
}
