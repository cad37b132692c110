package traffic

import (
	"context"
	"net/netip"
	"slices"
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
	addresses, err := a.outside()
	if err != nil {
		return err
	}
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
			told := entry
			told.Addresses = addresses[f]
			update.Entries = append(update.Entries, told)
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

// outside returns addresses beyond the cluster of unsent flows, sorted, as many as an entry may
// have.
func (a *Agent) outside() (map[flow][]string, error) {
	leaves := false
	for f := range a.unsent {
		leaves = leaves || f.to.IsUnspecified()
	}
	if !leaves {
		return nil, nil
	}
	all, err := a.kernel.readOutside()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y outward) int { return x.to.Compare(y.to) })
	out := map[flow][]string{}
	for _, o := range all {
		if slices.ContainsFunc(a.cfg.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(o.to) }) {
			continue
		}
		f := flow{from: o.from, to: netip.IPv4Unspecified(), protocol: o.protocol, port: o.port}
		if o.to.Is6() {
			f.to = netip.IPv6Unspecified()
		}
		if len(out[f]) < architecture.MaxAddresses {
			out[f] = append(out[f], o.to.String())
		}
	}
	return out, nil
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
