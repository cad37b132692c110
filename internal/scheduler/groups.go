package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// groups are the PodGroups and their pods (KEP-4671, ADR 108). The scheduler's goroutine owns it.
type groups struct {
	objects client.ViewOf[*schedulingv1alpha2.PodGroup]
	// members are the pods of each group that have not ended.
	members map[types.NamespacedName]map[types.UID]*corev1.Pod
	// scheduled are the groups that were reported as scheduled.
	scheduled map[types.UID]bool
}

// groupOf returns the name of the pod's group.
func groupOf(pod *corev1.Pod) (types.NamespacedName, bool) {
	g := pod.Spec.SchedulingGroup
	if g == nil || g.PodGroupName == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: *g.PodGroupName}, true
}

func inGroup(name types.NamespacedName) func(*framework.PodInfo) bool {
	return func(p *framework.PodInfo) bool {
		of, ok := groupOf(p.Pod)
		return ok && of == name
	}
}

// openGroups opens the View of PodGroups. A new group wakes its pods.
func (s *Scheduler) openGroups(ctx context.Context) (<-chan struct{}, error) {
	view, err := client.Open[*schedulingv1alpha2.PodGroup](ctx, s.client, client.Scope{})
	if err != nil {
		return nil, err
	}
	s.groups.objects = view
	_, done := view.Subscribe(ctx, func(e client.TypedEvent[*schedulingv1alpha2.PodGroup]) {
		if e.Type == client.Deleted {
			s.post(func(time.Time) { delete(s.groups.scheduled, e.Object.UID) })
			return
		}
		if e.Old != nil {
			return // a group's spec is immutable
		}
		name := types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name}
		s.post(func(now time.Time) {
			s.queue.cause = e.Revision
			s.queue.wakeFor(&framework.Change{Events: framework.GroupChanged, New: e.Object}, inGroup(name), now)
		})
	})
	return done, nil
}

// onGroupMember counts a pod in its group.
func (s *Scheduler) onGroupMember(pod *corev1.Pod, ended bool) {
	name, ok := groupOf(pod)
	if !ok || s.groups == nil {
		return
	}
	if ended {
		delete(s.groups.members[name], pod.UID)
		if len(s.groups.members[name]) == 0 {
			delete(s.groups.members, name)
		}
		return
	}
	if s.groups.members[name] == nil {
		s.groups.members[name] = map[types.UID]*corev1.Pod{}
	}
	s.groups.members[name][pod.UID] = pod
}

// onNewGroupMember wakes the pods that wait for others of their group.
func (s *Scheduler) onNewGroupMember(pod *corev1.Pod, now time.Time) {
	if name, ok := groupOf(pod); ok && s.groups != nil {
		s.queue.wakeFor(&framework.Change{Events: framework.GroupChanged, New: pod}, inGroup(name), now)
	}
}

// placedMembers counts the pods of a group that are on nodes, assumed ones included.
func (s *Scheduler) placedMembers(name types.NamespacedName) int {
	n := 0
	for uid := range s.groups.members[name] {
		if _, ok := s.cluster.where[uid]; ok {
			n++
		}
	}
	return n
}

// gangScheduling keeps the pods of a gang back until enough of them exist, and binds none of them
// until enough of them have a node. The scheduler's goroutine calls it.
type gangScheduling struct{ s *Scheduler }

// permitTimeout bounds the wait of a gang's pods for the others, as upstream.
const permitTimeout = 5 * time.Minute

// missingMembers is the reason for a pod whose gang has too few pods with nodes.
const missingMembers = "waiting for minCount pods from a gang to be scheduled"

func (*gangScheduling) Name() string { return framework.GangScheduling }

func (*gangScheduling) RequeueOn() framework.Events { return framework.GroupChanged }

// PreEnqueue implements framework.PreEnqueuePlugin.
func (p *gangScheduling) PreEnqueue(_ context.Context, pod *corev1.Pod) *framework.Status {
	name, ok := groupOf(pod)
	if !ok {
		return nil
	}
	group, ok := p.s.groups.objects.Get(name.Namespace, name.Name)
	if !ok {
		return framework.RefuseAlways(fmt.Sprintf("waiting for pods's pod group %q to appear in scheduling queue", name.Name))
	}
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil && len(p.s.groups.members[name]) < int(gang.MinCount) {
		return framework.RefuseAlways("waiting for minCount pods from a gang to appear in scheduling queue")
	}
	return nil
}

// Permit implements framework.PermitPlugin.
func (p *gangScheduling) Permit(_ context.Context, _ framework.State, pod *corev1.Pod, _ string) (*framework.Status, time.Duration) {
	name, ok := groupOf(pod)
	if !ok {
		return nil, 0
	}
	group, ok := p.s.groups.objects.Get(name.Namespace, name.Name)
	if !ok {
		return framework.Fail(fmt.Errorf("failed to get podGroup %s/%s: podgroup.scheduling.k8s.io %q not found", name.Namespace, name.Name, name.Name)), 0
	}
	gang := group.Spec.SchedulingPolicy.Gang
	if gang == nil {
		return nil, 0
	}
	h, members := handle{p.s}, p.s.groups.members[name]
	if p.s.placedMembers(name) < int(gang.MinCount) {
		var others []types.UID
		for uid := range members {
			if _, placed := p.s.cluster.where[uid]; !placed {
				others = append(others, uid)
			}
		}
		h.Activate(others...)
		return &framework.Status{Code: framework.Wait, Reasons: []string{missingMembers}}, permitTimeout
	}
	for uid := range members {
		if w, ok := h.WaitingPod(uid); ok {
			w.Allow(framework.GangScheduling)
		}
	}
	return nil, 0
}
