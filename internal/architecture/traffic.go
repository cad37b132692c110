package architecture

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Traffics is the resource of Traffic.
var Traffics = GroupVersion.WithResource("traffics")

// Limits of a Traffic object.
const (
	// MaxFlows is the maximum number of entries. The oldest ones give way.
	MaxFlows = 1000
	// FlowRetention is how long an entry stays after its last connection.
	FlowRetention = 24 * time.Hour
	// MaxAddresses is the maximum number of addresses beyond the cluster of an entry.
	MaxAddresses = 8
)

// Traffic is the connections that a node has seen. It is cluster-scoped, and named after its node.
// The node counts as long as the object exists.
//
// A connection is recorded where it ends: by the node of the destination's pod, or by the node of
// the source's pod if a policy there denies it or the destination is beyond the cluster. A node
// does not count connections of its own processes, such as probes.
//
// A node's update adds its entries to those that are there. The API server replaces their addresses
// by workloads, and drops an entry that is not about a pod of the node. Updates of others replace
// all entries, as usual.
type Traffic struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Entries are sorted by their ends.
	Entries []Flow `json:"entries,omitempty"`
}

// Unstructured returns the object as a client without types writes it.
func (t *Traffic) Unstructured() (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(GroupVersion.WithKind("Traffic"))
	return u, nil
}

// Verdict says whether connections were made.
type Verdict string

const (
	Allowed Verdict = "Allowed"
	// Denied by a NetworkPolicy, or dropped by another program's packet filter on the node.
	Denied Verdict = "Denied"
)

// Flow is the connections with the same ends and verdict.
type Flow struct {
	From End         `json:"from"`
	To   Destination `json:"to"`
	// Service is the one that the client addressed, as namespace/name. It is "" if the client
	// addressed the pod, or if the client's node is not the one that wrote the entry.
	Service string `json:"service,omitempty"`
	// Via is the address and port that the client named. Nodes write it; the API server replaces it
	// by Service.
	Via     string  `json:"via,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Addresses are some of those beyond the cluster that clients connected to, sorted.
	Addresses []string `json:"addresses,omitempty"`
	// FirstSeen and LastSeen are precise to about a minute.
	FirstSeen metav1.Time `json:"firstSeen"`
	LastSeen  metav1.Time `json:"lastSeen"`
	// Connections is their number. For UDP it is that of the kernel's flows. Denied ones count each
	// attempt.
	Connections int64 `json:"connections"`
}

// End is one end of a Flow: a workload or a pod without one, a Node, or Outside.
type End struct {
	Namespace string `json:"namespace,omitempty"`
	// Kind is Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, Pod, Node, or that of
	// another owner of pods.
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
	// Outside means all addresses beyond the cluster.
	Outside bool `json:"outside,omitempty"`
	// Address is that of a pod or node. Nodes write it; the API server replaces it.
	Address string `json:"address,omitempty"`
}

// Destination is the end that was connected to.
type Destination struct {
	End `json:",inline"`
	// Port is that of the pod, not of a Service.
	Port int32 `json:"port,omitempty"`
	// Protocol is TCP, UDP or SCTP.
	Protocol string `json:"protocol,omitempty"`
}

// identity is what distinguishes entries.
type identity struct {
	from         End
	to           Destination
	service, via string
	verdict      Verdict
}

// MergeFlows adds up entries with the same ends, Service and verdict. It drops those without a
// connection since FlowRetention, and the oldest beyond MaxFlows.
func MergeFlows(now time.Time, lists ...[]Flow) []Flow {
	merged := map[identity]*Flow{}
	for _, f := range slices.Concat(lists...) {
		if now.Sub(f.LastSeen.Time) > FlowRetention {
			continue
		}
		id := identity{f.From, f.To, f.Service, f.Via, f.Verdict}
		known := merged[id]
		if known == nil {
			merged[id] = &f
			continue
		}
		known.Connections += f.Connections
		known.Addresses = MergeAddresses(known.Addresses, f.Addresses)
		if f.FirstSeen.Before(&known.FirstSeen) {
			known.FirstSeen = f.FirstSeen
		}
		if known.LastSeen.Before(&f.LastSeen) {
			known.LastSeen = f.LastSeen
		}
	}
	out := make([]Flow, 0, len(merged))
	for _, f := range merged {
		out = append(out, *f)
	}
	if len(out) > MaxFlows {
		slices.SortFunc(out, func(a, b Flow) int { return cmp.Or(b.LastSeen.Compare(a.LastSeen.Time), compareFlows(a, b)) })
		out = out[:MaxFlows]
	}
	slices.SortFunc(out, compareFlows)
	return out
}

// MergeAddresses returns the addresses of both lists, sorted, and at most MaxAddresses.
func MergeAddresses(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), MaxAddresses)]
}

func compareFlows(a, b Flow) int {
	return cmp.Or(compareEnds(a.From, b.From), compareEnds(a.To.End, b.To.End), cmp.Compare(a.To.Port, b.To.Port), cmp.Compare(a.To.Protocol, b.To.Protocol),
		cmp.Compare(a.Service, b.Service), cmp.Compare(a.Via, b.Via), cmp.Compare(a.Verdict, b.Verdict))
}

func compareEnds(a, b End) int {
	outside := func(e End) int {
		if e.Outside {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(outside(a), outside(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Address, b.Address))
}
