package policy

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/api"
)

// Attachment is a pod's interface, as the pod network knows it before any process of the pod runs.
type Attachment struct {
	Key             string // unique on the node
	Namespace, Name string // of the pod
	UID             string // may be empty: an older runtime does not tell it
	Addresses       []netip.Addr
}

// attached is an attachment with the newest known state of its pod.
type attached struct {
	Attachment
	pod *corev1.Pod // nil until first read
}

// belongs reports whether the object is the attachment's pod. The object of a static pod is its
// mirror, with a UID of its own.
func (a Attachment) belongs(pod *corev1.Pod) bool {
	if a.Namespace != pod.Namespace || a.Name != pod.Name {
		return false
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return a.UID == "" || a.UID == string(pod.UID) || mirror
}

// object is the pod, or a pod without labels as long as the API has none of that name. Policies for
// all pods of the namespace select it too.
func (a attached) object() *corev1.Pod {
	if a.pod != nil {
		return a.pod
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
}

// attachments is the state that Attach and the loop share.
type attachments struct {
	mu      sync.Mutex // guards what follows
	byKey   map[string]attached
	hints   map[string]hint // policies by namespace and name
	waiting []chan struct{} // closed once the rules contain all attachments and hints
	guarded map[netip.Addr]bool
	failure error // of the latest attempt to change the rules
}

// hint is a policy that a read returned. The agent uses it until its View has reached the revision
// of that read.
type hint struct {
	policy   *networkingv1.NetworkPolicy
	revision int64
}

// Restore records attachments of an earlier process.
func (a *Agent) Restore(all []Attachment) {
	a.shared.mu.Lock()
	for _, at := range all {
		a.shared.byKey[at.Key] = attached{Attachment: at}
	}
	a.shared.mu.Unlock()
	a.wakeUp()
}

// Detach forgets an attachment. Its rules are removed a moment later.
func (a *Agent) Detach(key string) {
	a.shared.mu.Lock()
	delete(a.shared.byKey, key)
	a.shared.mu.Unlock()
	a.wakeUp()
}

// Attach records an attachment and returns once the pod's policies are in force for its addresses.
// It reads the pod and its namespace's policies from the API, because the agent's Views may not
// show them yet. Without a policy for the pod it does not wait.
//
// If the API does not answer, the last known policies decide: without any in the namespace, the pod
// is free. Otherwise Attach fails after Config.Patience, and the pod does not start.
func (a *Agent) Attach(ctx context.Context, at Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	now := attached{Attachment: at}
	selecting, revision, err := a.read(ctx, &now)
	if err != nil {
		return fmt.Errorf("network policies of pod %s/%s: %w", at.Namespace, at.Name, err)
	}
	wait := a.record(now, selecting, revision)
	if wait == nil {
		return nil
	}
	select {
	case a.urgent <- struct{}{}:
	default:
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		a.shared.mu.Lock()
		defer a.shared.mu.Unlock()
		err := a.shared.failure
		if err == nil {
			err = fmt.Errorf("the agent has not finished: %w", ctx.Err())
		}
		return fmt.Errorf("network policies select pod %s/%s and are not in force after %s; the pod starts once they are: %w", at.Namespace, at.Name, a.cfg.Patience, err)
	}
}

// record stores the attachment and returns the channel to wait for, or nil if no rule of the pod's
// addresses needs a change.
func (a *Agent) record(now attached, selecting []*networkingv1.NetworkPolicy, revision int64) <-chan struct{} {
	a.shared.mu.Lock()
	defer a.shared.mu.Unlock()
	a.shared.byKey[now.Key] = now
	needed := len(selecting) > 0
	for _, addr := range now.Addresses {
		needed = needed || a.shared.guarded[addr] // rules of the address's earlier pod
	}
	if !needed {
		return nil
	}
	for _, p := range selecting {
		if key := p.Namespace + "/" + p.Name; revision >= a.shared.hints[key].revision {
			a.shared.hints[key] = hint{p, revision}
		}
	}
	wait := make(chan struct{})
	a.shared.waiting = append(a.shared.waiting, wait)
	return wait
}

// read sets the attachment's pod and returns the policies that select it, with the revision at
// which they were read.
func (a *Agent) read(ctx context.Context, at *attached) ([]*networkingv1.NetworkPolicy, int64, error) {
	pod, unread := a.podOf(ctx, at.Attachment)
	switch {
	case unread != nil: // the pod's labels only matter if the namespace has a policy
	case pod == nil: // a static pod without its mirror
	case !at.belongs(pod):
		return nil, 0, fmt.Errorf("a newer pod of the same name has replaced it (uid %s, not %s)", pod.UID, at.UID)
	default:
		at.pod = pod
	}
	answer, err := a.cfg.Client.List(ctx, api.ResourceOf(&networkingv1.NetworkPolicy{}), at.Namespace, metav1.ListOptions{})
	if err != nil {
		return a.readKnown(at, err)
	}
	list, ok := answer.(*networkingv1.NetworkPolicyList)
	if !ok {
		return nil, 0, fmt.Errorf("the API answered with a %T where a list of policies was expected", answer)
	}
	if unread != nil && len(list.Items) > 0 {
		return nil, 0, fmt.Errorf("%d are in the namespace, and the API does not tell which apply: %w", len(list.Items), unread)
	}
	revision, _ := strconv.ParseInt(list.ResourceVersion, 10, 64)
	var selecting []*networkingv1.NetworkPolicy
	for i := range list.Items {
		if p := &list.Items[i]; selectorOf(&p.Spec.PodSelector).Matches(labels.Set(at.object().Labels)) {
			selecting = append(selecting, p)
		}
	}
	return selecting, revision, nil
}

// podOf reads the attachment's pod; nil means that it does not exist. It lists, because a node's
// identity may list the pods of the node by selector, but may get only those that it is known to
// have.
func (a *Agent) podOf(ctx context.Context, at Attachment) (*corev1.Pod, error) {
	selector := fields.Set{"metadata.name": at.Name, "spec.nodeName": a.cfg.NodeName}.AsSelector()
	answer, err := a.cfg.Own.List(ctx, api.ResourceOf(&corev1.Pod{}), at.Namespace, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	list, ok := answer.(*corev1.PodList)
	if !ok {
		return nil, fmt.Errorf("the API answered with a %T where a list of pods was expected", answer)
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Name == at.Name {
			return p, nil
		}
	}
	return nil, nil
}

// readKnown is read without an answer of the API, whose error is cause.
func (a *Agent) readKnown(at *attached, cause error) ([]*networkingv1.NetworkPolicy, int64, error) {
	var known []*networkingv1.NetworkPolicy
	select {
	case <-a.opened:
		known = a.policies.List(at.Namespace, nil)
	default:
		return nil, 0, fmt.Errorf("they are not known: %w", cause)
	}
	if len(known) > 0 {
		return nil, 0, fmt.Errorf("%d are in the namespace, and the API does not tell which apply: %w", len(known), cause)
	}
	return nil, 0, nil
}

// current returns the attachments, each with its newest pod, and the channels that wait for them.
// It forgets hints that the View of policies has overtaken.
func (a *Agent) current() (out []attached, waiting []chan struct{}) {
	a.shared.mu.Lock()
	defer a.shared.mu.Unlock()
	for key, h := range a.shared.hints {
		if a.policies.Revision() >= h.revision {
			delete(a.shared.hints, key)
		}
	}
	for key, at := range a.shared.byKey {
		if a.watching {
			if pod, ok := a.pods.Get(at.Namespace, at.Name); ok && at.belongs(pod) && (at.pod == nil || version(pod) >= version(at.pod)) {
				at.pod = pod
				a.shared.byKey[key] = at
			}
		}
		out = append(out, at)
	}
	return out, a.shared.waiting
}

// withHints adds the hints to the policies of the View, or replaces older ones.
func (a *Agent) withHints(policies []*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	a.shared.mu.Lock()
	defer a.shared.mu.Unlock()
	if len(a.shared.hints) == 0 {
		return policies
	}
	var out []*networkingv1.NetworkPolicy
	seen := map[string]bool{}
	for _, p := range policies {
		key := p.Namespace + "/" + p.Name
		if h, ok := a.shared.hints[key]; ok && version(h.policy) > version(p) {
			p = h.policy
		}
		seen[key] = true
		out = append(out, p)
	}
	for key, h := range a.shared.hints {
		if !seen[key] {
			out = append(out, h.policy)
		}
	}
	return out
}

func version(obj metav1.Object) int64 {
	v, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	return v
}

// settled ends the waiting of Attach after the rules were changed, or keeps the error for it.
func (a *Agent) settled(waiting []chan struct{}, err error) {
	a.shared.mu.Lock()
	defer a.shared.mu.Unlock()
	a.shared.failure = err
	if err != nil {
		return
	}
	for _, w := range waiting {
		close(w)
	}
	a.shared.waiting = a.shared.waiting[len(waiting):]
	a.shared.guarded = map[netip.Addr]bool{}
	for addr := range a.have.self {
		a.shared.guarded[addr] = true
	}
}

// pause delays the next change of the rules, so that changes are processed together. A waiting pod
// ends the pause.
func (a *Agent) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-a.urgent:
		a.wakeUp()
	case <-timer.C:
	}
}
