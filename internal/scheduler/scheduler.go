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
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// Config is what a scheduler needs.
type Config struct {
	Client client.Interface
	Events client.Recorder
	// Profiles has one profile for each scheduler name. Empty means upstream's default profile for
	// "default-scheduler".
	Profiles []framework.Profile
	// Binders is the maximum number of concurrent writes; 0 means 64.
	Binders int
	Logger  *slog.Logger
	// Metrics count the work of the scheduler; nil means that no registry shows them.
	Metrics *Metrics
}

// Scheduler queues pods, decides about them and binds them. Run owns its state.
type Scheduler struct {
	client   client.Interface
	events   client.Recorder
	profiles map[string]*framework.Profile
	wants    map[string]framework.Events // by plugin, the events after which its refusal may change
	log      *slog.Logger
	metrics  *Metrics

	// Other goroutines only touch the inbox. mu guards it.
	mu    sync.Mutex
	inbox []func(now time.Time)
	wake  chan struct{}

	// The goroutine of Run owns these.
	cluster   *cluster
	queue     *queue
	nominated map[string][]*framework.PodInfo
	gated     map[types.UID]string // scheduler names of the pods with scheduling gates
	nextStart int
	budgets   client.ViewOf[*policyv1.PodDisruptionBudget]
	storage   *storage
	allocator *allocator

	binders chan struct{}
	writing sync.WaitGroup
}

// New makes a scheduler; Run starts it.
func New(cfg Config) *Scheduler {
	if len(cfg.Profiles) == 0 {
		cfg.Profiles = []framework.Profile{plugins.Default(corev1.DefaultSchedulerName)}
	}
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
		client: cfg.Client, events: cfg.Events, log: cfg.Logger, metrics: cfg.Metrics, profiles: map[string]*framework.Profile{}, wants: map[string]framework.Events{},
		wake: make(chan struct{}, 1), queue: newQueue(cfg.Metrics), nominated: map[string][]*framework.PodInfo{}, gated: map[types.UID]string{}, binders: make(chan struct{}, cfg.Binders),
	}
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		s.profiles[p.SchedulerName] = p
		for _, f := range p.Filters {
			s.wants[f.Name()] = framework.Any
			if r, ok := f.(framework.Requeuer); ok {
				s.wants[f.Name()] = r.RequeueOn()
			}
		}
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
	snapshot := s.cluster.takeSnapshot()
	if len(snapshot.Nodes) > 0 {
		s.nextStart = (s.nextStart + 1) % len(snapshot.Nodes)
	}
	watch := s.metrics.stopwatch(profile, began)
	d := Decide(Input{
		Snapshot: snapshot, Pod: p.info, Profile: profile, Nominated: s.nominated,
		Start: s.nextStart, Pick: rand.Uint64(), Observe: watch.lap,
	})
	s.metrics.decisionTimes.Observe(time.Since(began).Seconds())
	if d.Node == "" {
		s.refuse(ctx, p, profile, snapshot, &d, watch, began)
		return true
	}
	s.cluster.assume(p.info, d.Node)
	s.forgetNomination(p.info)
	s.finish(ctx, &cycle{p: p, pod: p.info.Pod, node: d.Node, profile: profile, state: d.State, skipped: d.Skipped, began: began, since: p.since, attempts: p.attempts})
	return true
}

// write runs fn in another goroutine. It waits while all binders are busy.
func (s *Scheduler) write(ctx context.Context, fn func()) {
	if s.acquireBinder(ctx) != nil {
		return
	}
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		defer s.releaseBinder()
		fn()
	}()
}

// acquireBinder waits for a free binder; releaseBinder releases it.
func (s *Scheduler) acquireBinder(ctx context.Context) error {
	select {
	case s.binders <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Scheduler) releaseBinder() { <-s.binders }

// unassume undoes a decision whose binding failed.
func (s *Scheduler) unassume(ctx context.Context, p *queued, err error, now time.Time) {
	s.log.Info("binding failed", "pod", p.info.Pod.Namespace+"/"+p.info.Pod.Name, "error", err)
	if _, waits := s.queue.pods[p.info.Pod.UID]; waits && ctx.Err() == nil {
		s.report(ctx, p.info.Pod, corev1.PodReasonSchedulerError, err.Error(), new(string))
	}
	if _, ok := s.cluster.assumed[p.info.Pod.UID]; ok {
		s.cluster.removePod(p.info)
		s.queue.wake(framework.PodRemoved, now)
	}
	s.queue.failed(p, now)
}

// refuse records why a pod found no node, and tries preemption.
func (s *Scheduler) refuse(ctx context.Context, p *queued, profile *framework.Profile, snapshot *framework.Snapshot, d *Decision, watch *stopwatch, began time.Time) {
	now := time.Now()
	pod := p.info.Pod
	if d.Err != nil {
		s.metrics.attempted(pod, resultError, began)
		s.queue.failed(p, now)
		s.report(ctx, pod, corev1.PodReasonSchedulerError, d.Message(), nil)
		return
	}
	var wants framework.Events
	p.refused = sets.List(d.RefusedBy())
	for _, plugin := range p.refused {
		wants |= s.wants[plugin]
	}
	if d.Nodes == 0 {
		wants = framework.NodeAdded
	}
	if decided, ok := decidedDevices(d.State); ok && len(decided.InTheWay()) > 0 {
		s.write(ctx, func() {
			if err := s.allocator.makeRoom(ctx, pod, decided.InTheWay()); err != nil {
				s.log.Warn("cannot take devices from a claim for a pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
			}
		})
	}
	message, nominated := d.Message(), nomination(nil)
	if v := preempt(snapshot, p.info, profile, d, s.budgets.List("", nil)); v != nil {
		nominated = &v.node
		s.metrics.preemptions.Inc()
		s.metrics.victims.Observe(float64(len(v.pods)))
		watch.lap("PostFilter", statusSuccess)
		s.nominate(p.info, v.node)
		s.write(ctx, func() { s.evict(ctx, pod, v) })
	} else if d.Nodes > 0 {
		s.metrics.preemptions.Inc()
		watch.lap("PostFilter", statusUnschedulable)
		if pod.Status.NominatedNodeName != "" && mayPreempt(snapshot, pod) {
			nominated = new(string) // the pod is not expected on the node any more
			s.forgetNomination(p.info)
		}
		message += " "
		if _, ok := decidedDevices(d.State); ok {
			message += "still not schedulable, " // taking devices from claims did not help either
		}
		message += preemptionMessage(d)
	}
	s.metrics.attempted(pod, resultUnschedulable, began)
	s.queue.refused(p, wants, now)
	s.report(ctx, pod, corev1.PodReasonUnschedulable, message, nominated)
}

// preemptionMessage says why preemption did not help, in upstream's words.
func preemptionMessage(d *Decision) string {
	var never, noVictims int
	for _, status := range d.Refusals {
		if status.Code == framework.UnschedulableAndUnresolvable {
			never++
		} else {
			noVictims++
		}
	}
	if d.Whole != nil {
		never = d.Nodes
	}
	text := fmt.Sprintf("preemption: 0/%d nodes are available: ", d.Nodes)
	switch {
	case never == 0:
		return text + fmt.Sprintf("%d No preemption victims found for incoming pod.", noVictims)
	case noVictims == 0:
		return text + fmt.Sprintf("%d Preemption is not helpful for scheduling.", never)
	default:
		return text + fmt.Sprintf("%d No preemption victims found for incoming pod, %d Preemption is not helpful for scheduling.", noVictims, never)
	}
}

func (s *Scheduler) nominate(info *framework.PodInfo, node string) {
	s.forgetNomination(info)
	s.nominated[node] = append(s.nominated[node], info)
}

func (s *Scheduler) forgetNomination(info *framework.PodInfo) {
	for _, node := range slices.Collect(maps.Keys(s.nominated)) {
		s.nominated[node] = slices.DeleteFunc(s.nominated[node], func(o *framework.PodInfo) bool { return o.Pod.UID == info.Pod.UID })
		if len(s.nominated[node]) == 0 {
			delete(s.nominated, node)
		}
	}
}

// onPod handles a change of a pod, in the scheduler's goroutine.
func (s *Scheduler) onPod(old, pod *corev1.Pod, deleted bool, now time.Time) {
	wasGated := s.gated[pod.UID] != ""
	delete(s.gated, pod.UID)
	ended := deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if pod.Spec.NodeName != "" || ended {
		s.queue.remove(pod.UID)
	}
	switch {
	case ended:
		info := framework.NewPodInfo(pod)
		s.forgetNomination(info)
		if s.cluster.removePod(info) || pod.Status.NominatedNodeName != "" {
			s.queue.wake(framework.PodRemoved, now)
		}
	case pod.Spec.NodeName != "":
		s.onBoundPod(old, pod, now)
	case s.isSchedulable(pod):
		info := framework.NewPodInfo(pod)
		_, assumed := s.cluster.assumed[pod.UID] // if so, it already counts on its node
		if node := pod.Status.NominatedNodeName; node != "" && !assumed && s.nominatedOn(info) == "" {
			s.nominate(info, node)
		}
		s.queue.put(info, old == nil || schedulingChanged(old, pod), now)
	default:
		s.queue.remove(pod.UID)
		if s.isGated(pod) {
			s.gated[pod.UID] = pod.Spec.SchedulerName
			if !wasGated {
				s.metrics.queuedTo(unschedulable, "UnschedulablePodAdd")
			}
		}
	}
}

func (s *Scheduler) onBoundPod(old, pod *corev1.Pod, now time.Time) {
	info := framework.NewPodInfo(pod)
	at, known := s.cluster.where[pod.UID]
	s.forgetNomination(info)
	if known && at.node == pod.Spec.NodeName && old != nil && old.Spec.NodeName != "" && !placementChanged(old, pod) {
		return // most updates of a bound pod change only fields that do not matter here
	}
	s.cluster.setPod(info)
	e := framework.PodAssigned
	if known && (info.Requests.MilliCPU < at.info.Requests.MilliCPU || info.Requests.Memory < at.info.Requests.Memory) {
		e |= framework.PodScaledDown
	}
	s.queue.wake(e, now)
}

func (s *Scheduler) nominatedOn(info *framework.PodInfo) string {
	for node, pods := range s.nominated {
		if slices.ContainsFunc(pods, func(o *framework.PodInfo) bool { return o.Pod.UID == info.Pod.UID }) {
			return node
		}
	}
	return ""
}

// isSchedulable reports whether the pod is for one of the profiles and has no scheduling gates
// (KEP-3521).
func (s *Scheduler) isSchedulable(pod *corev1.Pod) bool {
	_, ok := s.profiles[pod.Spec.SchedulerName]
	return ok && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

// isGated reports whether the pod is for one of the profiles, but still has scheduling gates.
func (s *Scheduler) isGated(pod *corev1.Pod) bool {
	_, ok := s.profiles[pod.Spec.SchedulerName]
	return ok && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) > 0
}

func schedulingChanged(old, pod *corev1.Pod) bool {
	return !maps.Equal(old.Labels, pod.Labels) || !equality.Semantic.DeepEqual(old.Spec, pod.Spec) ||
		!claimhelper.PodStatusEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses)
}

func placementChanged(old, pod *corev1.Pod) bool {
	return !maps.Equal(old.Labels, pod.Labels) || old.Generation != pod.Generation || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		!equality.Semantic.DeepEqual(old.Status.ContainerStatuses, pod.Status.ContainerStatuses) && resized(old, pod)
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
