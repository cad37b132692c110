// Package scheduler binds pods to nodes. It opens Views of pods and nodes and keeps a picture of
// the cluster in one goroutine. For each pod it calls a pure function (Decide), counts the pod on
// its node at once, and writes the binding beside the next decision.
//
// A pod is queued (active, in backoff, or waiting for an event). Then it is decided and assumed on
// its node, and bound. Or it is refused: a condition and an event say why, and preemption may
// nominate a node.
package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/scheduler/extender"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/settings"
)

// Config is what a scheduler needs.
type Config struct {
	Client client.Interface
	Events client.Recorder
	// Binders is the maximum number of concurrent writes; 0 means 64.
	Binders int
	Logger  *slog.Logger
	// Metrics count the work of the scheduler; nil means that no registry shows them.
	Metrics *Metrics
	// Gates are the feature gates that are on besides the defaults. With GenericWorkload the pods
	// of a PodGroup are tried together; GangScheduling also enables the plugin of this name.
	Gates []string
}

// Scheduler queues pods, decides about them and binds them. Run owns its state.
type Scheduler struct {
	client      client.Interface
	events      client.Recorder
	profiles    map[string]*framework.Profile
	extenders   []*extender.Extender
	requeues    map[string]requeues // by profile
	evaluations map[*framework.Profile]*evaluations
	// The profiles are those of configured with the plugins in added.
	configured *setup
	added      []framework.Addition
	log        *slog.Logger
	metrics    *Metrics

	// Other goroutines only touch these; mu guards them.
	mu      sync.Mutex
	inbox   []func(now time.Time)
	running bool // Run has begun
	wake    chan struct{}

	// The goroutine of Run owns these.
	cluster   *cluster
	queue     *queue
	nominated map[string][]*framework.PodInfo // by node
	nominee   map[types.UID]string            // the node of each nominated pod
	nextStart int
	classes   *Classes
	budgets   client.ViewOf[*policyv1.PodDisruptionBudget]
	pods      client.ViewOf[*corev1.Pod]
	storage   *storage
	groups    *groups // nil while the feature gate is off
	gang      bool    // the default plugins include GangScheduling

	// The parts of plugins that act. Run completes volumes and allocator.
	volumes   *volumeBinder
	allocator *allocator
	waiting   waitingPods
	reports   reports

	binders chan struct{}
	writing sync.WaitGroup
}

// New makes a scheduler with upstream's default profile; Run starts it.
func New(cfg Config) *Scheduler {
	if cfg.Binders == 0 {
		cfg.Binders = 64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	s := &Scheduler{
		client: cfg.Client, events: cfg.Events, log: cfg.Logger, metrics: cfg.Metrics,
		wake: make(chan struct{}, 1), classes: NewClasses(), queue: newQueue(cfg.Metrics), nominated: map[string][]*framework.PodInfo{}, nominee: map[types.UID]string{}, binders: make(chan struct{}, cfg.Binders),
		volumes: &volumeBinder{}, allocator: &allocator{metrics: cfg.Metrics},
	}
	s.queue.gate = func(info *framework.PodInfo) (string, framework.Events) {
		return s.preEnqueue(context.Background(), info)
	}
	s.queue.helps = s.helps
	if slices.Contains(cfg.Gates, "GenericWorkload") {
		s.groups = &groups{members: map[types.NamespacedName]map[types.UID]*corev1.Pod{}, scheduled: map[types.UID]bool{}}
		s.gang = slices.Contains(cfg.Gates, framework.GangScheduling)
	}
	if err := s.Configure(settings.Default(), nil); err != nil {
		panic(err) // only a mistake in the list of default plugins can cause it
	}
	return s
}

// Run schedules until ctx ends. It returns when all writes have ended.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		s.writing.Wait()
	}()
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	s.queue.gate = func(info *framework.PodInfo) (string, framework.Events) { return s.preEnqueue(ctx, info) }
	done, err := s.watch(ctx)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	defer s.metrics.pending.add(s)()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.drain()
		if s.scheduleOne(ctx) {
			continue
		}
		timer.Reset(time.Hour)
		if at, ok := s.queue.next(); ok {
			timer.Reset(max(time.Until(at), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			for _, d := range done {
				<-d
			}
			s.storage.opened.wait()
			s.allocator.devices.opened.wait()
			return nil
		case <-s.wake:
		case <-timer.C:
			s.queue.wake(0, time.Now())
		}
	}
}

// post queues a change for the scheduler's goroutine.
func (s *Scheduler) post(change func(now time.Time)) {
	s.mu.Lock()
	s.inbox = append(s.inbox, change)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Scheduler) drain() {
	s.mu.Lock()
	changes := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	now := time.Now()
	for _, change := range changes {
		change(now)
		s.queue.cause = 0
	}
}

// scheduleOne tries the next pod. It returns false if no pod is ready.
func (s *Scheduler) scheduleOne(ctx context.Context) bool {
	began := time.Now()
	p, ok := s.queue.pop(began)
	if !ok {
		return false
	}
	profile := s.profiles[p.info.Pod.Spec.SchedulerName]
	if profile == nil { // the configuration has lost it
		s.queue.remove(p.info.Pod.UID)
		return true
	}
	if name, ok := groupOf(p.info.Pod); ok && s.groups != nil {
		s.scheduleGroup(ctx, name, p, began)
		return true
	}
	watch := s.metrics.stopwatch(profile, began)
	snapshot, d := s.decide(ctx, p, profile, watch)
	took := time.Since(began)
	s.metrics.decisionTimes.Observe(took.Seconds())
	ctx = because.With(ctx, p.woken)
	p.woken = because.Revisions{}
	if d.Node == "" {
		defer d.State.End()
		s.refuse(ctx, p, profile, snapshot, &d, watch, began)
		return true
	}
	s.cluster.assume(p.info, d.Node)
	s.forgetNomination(p.info.Pod.UID)
	if because.Tracked(ctx) {
		ctx = because.WithNote(ctx, d.Note(took))
	}
	s.finish(ctx, s.cycleOf(p, profile, &d, began))
	return true
}

// decide decides about a pod, with the cluster as it is now.
func (s *Scheduler) decide(ctx context.Context, p *queued, profile *framework.Profile, watch *stopwatch) (*framework.Snapshot, Decision) {
	snapshot := s.cluster.takeSnapshot()
	if nodes := snapshot.Nodes.Len(); nodes > 0 {
		s.nextStart = (s.nextStart + 1) % nodes
	}
	d := Decide(Input{
		Snapshot: snapshot, Pod: p.info, Profile: profile, Nominated: s.nominated,
		Start: s.nextStart, Pick: rand.Uint64(), Observe: watch.lap, Classes: s.classes, Extension: s.extension(ctx),
	})
	s.evaluations[profile].count(profile, &d)
	return snapshot, d
}

// cycleOf returns the binding of a pod that has a node.
func (s *Scheduler) cycleOf(p *queued, profile *framework.Profile, d *Decision, began time.Time) *cycle {
	return &cycle{p: p, pod: p.info.Pod, node: d.Node, profile: profile, state: d.State, skipped: d.Skipped, binder: s.binderOf(p.info.Pod), began: began, since: p.since, attempts: p.attempts, flushed: p.flushed}
}

// write runs fn in another goroutine. It waits while all binders are busy, and returns false if ctx
// ends meanwhile.
func (s *Scheduler) write(ctx context.Context, fn func()) bool {
	if s.acquireBinder(ctx) != nil {
		return false
	}
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		defer s.releaseBinder()
		fn()
	}()
	return true
}

// acquireBinder waits for a free binder; releaseBinder releases it, and lets reports be written
// that bindings have delayed.
func (s *Scheduler) acquireBinder(ctx context.Context) error {
	select {
	case s.binders <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Scheduler) releaseBinder() {
	<-s.binders
	s.writeReports()
}

// unassume undoes a decision that was not carried out. status says why; an unreserved pod that a
// plugin refused waits for the plugin's events.
func (s *Scheduler) unassume(ctx context.Context, c *cycle, status *framework.Status, now time.Time) {
	p := c.p
	s.log.Info("binding failed", "pod", p.info.Pod.Namespace+"/"+p.info.Pod.Name, "plugin", status.Plugin, "reason", reasonsOf(status))
	reason, message := corev1.PodReasonSchedulerError, reasonsOf(status)
	if status.Rejected() {
		reason, message = corev1.PodReasonUnschedulable, messageOf(1, map[*framework.Status]int{status: 1})
	}
	if _, waits := s.queue.pods[p.info.Pod.UID]; waits && ctx.Err() == nil {
		s.report(ctx, p.info.Pod, reason, message, new(string))
	}
	// The pod returns to the queue first: the room that it gives up does not help itself.
	if status.Rejected() {
		p.refused = []string{status.Plugin}
		s.queue.refused(p, s.requeues[c.profile.SchedulerName].wants(p.refused), now)
	}
	if _, ok := s.cluster.assumed[p.info.Pod.UID]; ok {
		s.cluster.removePod(p.info.Pod.UID)
		s.queue.wakeFor(&framework.Change{Events: framework.PodRemoved, Old: p.info}, func(o *framework.PodInfo) bool { return o.Pod.UID != c.pod.UID }, now)
	}
	if !status.Rejected() {
		s.queue.failed(p, now)
	}
}

// refuse records why a pod found no node, and asks the PostFilter plugins to make room for it.
func (s *Scheduler) refuse(ctx context.Context, p *queued, profile *framework.Profile, snapshot *framework.Snapshot, d *Decision, watch *stopwatch, began time.Time) {
	now := time.Now()
	pod := p.info.Pod
	failed := func(message string) {
		s.metrics.attempted(pod, resultError, began)
		s.queue.failed(p, now)
		s.report(ctx, pod, corev1.PodReasonSchedulerError, message, nil)
	}
	if d.Err != nil {
		failed(d.Message())
		return
	}
	p.refused = sets.List(d.RefusedBy())
	wants := s.requeues[profile.SchedulerName].wants(p.refused)
	if d.Nodes == 0 {
		wants = framework.NodeAdded
	}
	message, nominated := d.Message(), nomination(nil)
	node, text, err := s.postFilter(ctx, p.info, profile, snapshot, d)
	switch {
	case err != nil:
		watch.lap("PostFilter", statusError)
		failed(err.Error())
		return
	case node != "":
		watch.lap("PostFilter", statusSuccess)
		s.nominate(p.info, node)
		nominated = &node
	case d.Nodes > 0:
		watch.lap("PostFilter", statusUnschedulable)
		if pod.Status.NominatedNodeName != "" && mayNotPreempt(snapshot, pod, d.refusalOfEach(snapshot)) == "" {
			nominated = new(string) // the pod is not expected on the node any more
			s.forgetNomination(p.info.Pod.UID)
		}
		if text != "" {
			message += " " + text
		}
	}
	s.metrics.attempted(pod, resultUnschedulable, began)
	s.queue.refused(p, wants, now)
	s.report(ctx, pod, corev1.PodReasonUnschedulable, message, nominated)
}

func (s *Scheduler) nominate(info *framework.PodInfo, node string) {
	s.forgetNomination(info.Pod.UID)
	s.nominated[node] = append(s.nominated[node], info)
	s.nominee[info.Pod.UID] = node
}

func (s *Scheduler) forgetNomination(uid types.UID) {
	node, ok := s.nominee[uid]
	if !ok {
		return
	}
	delete(s.nominee, uid)
	s.nominated[node] = slices.DeleteFunc(s.nominated[node], func(o *framework.PodInfo) bool { return o.Pod.UID == uid })
	if len(s.nominated[node]) == 0 {
		delete(s.nominated, node)
	}
}

// onPod handles a change of a pod, in the scheduler's goroutine.
func (s *Scheduler) onPod(old, pod *corev1.Pod, deleted bool, now time.Time) {
	ended := deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Spec.NodeName != "" || ended {
		s.queue.remove(pod.UID)
	}
	s.onGroupMember(pod, ended)
	switch {
	case ended:
		if w, ok := s.waiting.get(pod.UID); ok {
			w.Reject("", "removed")
		}
		s.forgetNomination(pod.UID)
		at, known := s.cluster.where[pod.UID]
		switch {
		case known:
			s.cluster.removePod(pod.UID)
			s.queue.wakeFor(&framework.Change{Events: framework.PodRemoved, Old: at.info}, nil, now)
		case pod.Status.NominatedNodeName != "":
			s.queue.wakeFor(&framework.Change{Events: framework.PodRemoved, Old: framework.NewPodInfo(pod)}, nil, now)
		}
	case pod.Spec.NodeName != "":
		s.onBoundPod(old, pod, now)
	case s.isSchedulable(pod):
		info := framework.NewPodInfo(pod)
		_, assumed := s.cluster.assumed[pod.UID] // if so, it already counts on its node
		if node := pod.Status.NominatedNodeName; node != "" && !assumed && s.nominee[pod.UID] == "" {
			s.nominate(info, node)
		}
		s.queue.put(info, old == nil || schedulingChanged(old, pod), now)
		if old == nil {
			s.onNewGroupMember(pod, now)
		}
	default:
		s.queue.remove(pod.UID)
	}
}

func (s *Scheduler) onBoundPod(old, pod *corev1.Pod, now time.Time) {
	if s.cluster.confirm(old, pod) {
		s.queue.wakeFor(&framework.Change{Events: framework.PodAssigned, New: s.cluster.where[pod.UID].info}, nil, now)
		return
	}
	at, known := s.cluster.where[pod.UID]
	s.forgetNomination(pod.UID)
	if known && at.node == pod.Spec.NodeName && old != nil && old.Spec.NodeName != "" && !placementChanged(old, pod) {
		return // most updates of a bound pod change only fields that do not matter here
	}
	info := infoOf(pod, at.info)
	change := &framework.Change{Events: framework.PodAssigned, New: info}
	if _, assumed := s.cluster.assumed[pod.UID]; known && !assumed && old != nil && old.Spec.NodeName != "" {
		change.Old = at.info
	}
	if known && (info.Requests.MilliCPU < at.info.Requests.MilliCPU || info.Requests.Memory < at.info.Requests.Memory) {
		change.Events |= framework.PodScaledDown
	}
	s.cluster.setPod(info)
	s.queue.wakeFor(change, nil, now)
}

// infoOf returns the pod's values. It takes them from an earlier state of the pod, which may be
// nil, if nothing has changed that they are computed from.
func infoOf(pod *corev1.Pod, earlier *framework.PodInfo) *framework.PodInfo {
	if earlier == nil || !sameInfo(earlier.Pod, pod) {
		return framework.NewPodInfo(pod)
	}
	info := *earlier
	info.Pod = pod
	return &info
}

// sameInfo reports whether two states of a pod have the same PodInfo. The API server counts changes
// of a pod's spec in its generation (KEP-5067); binding is not one. Allocated resources in the
// status count too, but only nodes write them.
func sameInfo(old, pod *corev1.Pod) bool {
	return old.Generation != 0 && old.Generation == pod.Generation && maps.Equal(old.Labels, pod.Labels) &&
		len(old.Status.ContainerStatuses)+len(old.Status.InitContainerStatuses) == 0 &&
		len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) == 0 && old.Status.Resources == nil && pod.Status.Resources == nil
}

// isSchedulable reports whether the pod is for one of the profiles.
func (s *Scheduler) isSchedulable(pod *corev1.Pod) bool {
	_, ok := s.profiles[pod.Spec.SchedulerName]
	return ok && pod.DeletionTimestamp == nil
}

func schedulingChanged(old, pod *corev1.Pod) bool {
	return !maps.Equal(old.Labels, pod.Labels) || !equality.Semantic.DeepEqual(old.Spec, pod.Spec) ||
		!claimhelper.PodStatusEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses)
}

func placementChanged(old, pod *corev1.Pod) bool {
	return !maps.Equal(old.Labels, pod.Labels) || old.Generation != pod.Generation || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(old.Status.ContainerStatuses, pod.Status.ContainerStatuses) && resized(old, pod) ||
		!equality.Semantic.DeepEqual(old.Status.Resources, pod.Status.Resources) || !equality.Semantic.DeepEqual(old.Status.AllocatedResources, pod.Status.AllocatedResources)
}

// resized reports whether the node has allocated other resources to the containers (KEP-1287).
func resized(old, pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if i >= len(old.Status.ContainerStatuses) ||
			!equality.Semantic.DeepEqual(old.Status.ContainerStatuses[i].Resources, pod.Status.ContainerStatuses[i].Resources) ||
			!equality.Semantic.DeepEqual(old.Status.ContainerStatuses[i].AllocatedResources, pod.Status.ContainerStatuses[i].AllocatedResources) {
			return true
		}
	}
	return false
}
