package spans

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Names of Spans.
const (
	Volumes   = "volumes"   // devices and volumes are prepared and mounted
	Network   = "network"   // the CNI agent connects the pod
	Sandbox   = "sandbox"   // the runtime makes the sandbox, the network within
	Image     = "image"     // an image is found on the node
	Pull      = "pull"      // an image is pulled
	Create    = "create"    // the runtime makes a container
	Start     = "start"     // the runtime starts a container
	PostStart = "postStart" // the hook runs
	Probe     = "probe"     // a probe has another result than before
	Ready     = "ready"     // the pod became ready
	Stop      = "stop"      // a container stops, with its hook
	Release   = "release"   // the sandbox, the network and the volumes are removed
	Rules     = "rules"     // the packet rules of an object are in the kernel
	Names     = "names"     // the node's DNS answers by a Service or an EndpointSlice
)

// Span is one piece of work on a node.
type Span struct {
	Name string `json:"name"`
	// Namespace and Object name the pod, or the object that Rules or Names follow: an
	// EndpointSlice, a NetworkPolicy, PolicyPeers or a Service. UID is the pod's.
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object"`
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"`
	// Detail is the image, or the probe with its result.
	Detail string `json:"detail,omitempty"`
	// Bytes is the size of a pulled image.
	Bytes int64 `json:"bytes,omitempty"`
	// Revisions are those of the object that Rules or Names follow.
	Revisions []int64 `json:"revisions,omitempty"`
	// Error says why the work failed; "" if it did not.
	Error string    `json:"error,omitempty"`
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
}

// Bounds of a Ring: 1,500 steps of pods, and 500 rules and names, of 1 MB in all.
const (
	maxSteps, maxRules           = 1500, 500
	maxStepsBytes, maxRulesBytes = 768 << 10, 256 << 10
	// maxText bounds each text of a Span.
	maxText = 256
	// spanBytes is the memory of a Span without its texts.
	spanBytes = 240
)

// Ring keeps the newest Spans of a node. The zero value is empty and ready. A nil Ring keeps
// nothing. Safe for concurrent use.
type Ring struct {
	mu           sync.Mutex
	steps, rules lane
}

// lane is a queue of Spans. The oldest is at list[first].
type lane struct {
	list         []Span
	first, bytes int
	dropped      int64
}

// Note keeps a Span. Times are cut to microseconds, long texts are cut.
func (r *Ring) Note(s Span) {
	if r == nil {
		return
	}
	for _, text := range []*string{&s.Namespace, &s.Object, &s.UID, &s.Container, &s.Detail, &s.Error} {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8(strings.Clone((*text)[:maxText]), "")
		}
	}
	s.Begin, s.End = s.Begin.Truncate(time.Microsecond), s.End.Truncate(time.Microsecond)
	if s.End.Before(s.Begin) {
		s.Begin = s.End
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.OfObject() {
		r.rules.add(s, maxRules, maxRulesBytes)
		return
	}
	r.steps.add(s, maxSteps, maxStepsBytes)
}

// OfObject reports whether the Span follows a write of an object, and is no step of a pod.
func (s *Span) OfObject() bool { return s.Name == Rules || s.Name == Names }

func (s *Span) bytes() int {
	return spanBytes + len(s.Namespace) + len(s.Object) + len(s.UID) + len(s.Container) + len(s.Detail) + len(s.Error) + 8*len(s.Revisions)
}

func (l *lane) add(s Span, most, mostBytes int) {
	l.bytes += s.bytes()
	l.list = append(l.list, s)
	for len(l.list)-l.first > most || l.bytes > mostBytes {
		l.bytes -= l.list[l.first].bytes()
		l.list[l.first] = Span{}
		l.first++
		l.dropped++
	}
	if l.first > most/4 { // give the front back
		l.list = append(make([]Span, 0, len(l.list)-l.first+most/4), l.list[l.first:]...)
		l.first = 0
	}
}

// Select returns the Spans of the pods with these UIDs and of the rules and names of the objects
// NAMESPACE/NAME, in the order of their ends. dropped is the number of Spans that were kept once
// and are not any more.
func (r *Ring) Select(pods, objects []string) (found []Span, dropped int64) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps.list[r.steps.first:] {
		if s.UID != "" && slices.Contains(pods, s.UID) {
			found = append(found, s)
		}
	}
	for _, s := range r.rules.list[r.rules.first:] {
		if slices.Contains(objects, s.Namespace+"/"+s.Object) {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b Span) int { return a.End.Compare(b.End) })
	return found, r.steps.dropped + r.rules.dropped
}
