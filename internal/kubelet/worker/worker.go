package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/volume"
)

// Stage is a pod's position in its life on this node. Stages only advance, and only the worker
// advances them.
type Stage int

const (
	// Syncing means that the pod's containers should run.
	Syncing Stage = iota
	// Terminating means that no container starts any more and the running ones are being stopped.
	Terminating
	// Terminated means that nothing runs. The sandbox, volumes and cgroup are being removed.
	Terminated
	// Released means that only dead containers and logs are left on the node. A completed pod stays
	// in this stage until it is deleted.
	Released
	// Gone means that the API has confirmed the deletion and nothing is left on the node.
	Gone
)

func (s Stage) String() string {
	return [...]string{"Syncing", "Terminating", "Terminated", "Released", "Gone"}[s]
}

// Failure is the reason for which the node agent ends a pod as Failed.
type Failure struct {
	// Cause is "Admission", "DeadlineExceeded", "Evicted", "Preempting" or "Shutdown".
	Cause           string
	Reason, Message string
	// Grace overrides the pod's grace period, in seconds.
	Grace *int64
}

// Worker runs one pod on this node.
type Worker struct {
	*Deps
	log *slog.Logger

	inboxMu sync.Mutex
	inbox   []func()
	wake    chan struct{}
	done    chan struct{}

	// The worker's goroutine owns the fields below.
	pod      *corev1.Pod
	removed  bool // the source does not have the pod any more
	static   bool
	old      corev1.PodStatus // the status published last
	observed *pleg.Observed
	stage    Stage
	failure  *Failure
	tasks    map[string]*task
	probes   *probe.Set

	sandboxConfig *runtimeapi.PodSandboxConfig
	handler       string
	cgroupParent  string
	prepared      bool
	mounts        map[string]volume.MountPoint
	shown         *corev1.Pod              // the pod as its volumes show it
	images        map[string]*images.Image // images for the next start, by container name
	volumeImages  map[string]*runtimeapi.ImageSpec
	crashes       map[string]crash
	problems      map[string]problem
	podProblem    map[string]problem // when to retry the failed action "prepare", "sandbox", ...
	hidden        map[string]bool
	replaced      map[string]string // stopped for a changed definition: name → id
	messages      map[string]string
	resources     map[string]*corev1.ResourceRequirements // by container id
	effective     map[string]corev1.ResourceRequirements  // the same with the pod's limits
	resize        resizeState
	restartAll    restartAll
	startTime     metav1.Time
	ending        ending
	plan          *plan
	deleted       bool // the API has confirmed the deletion
	interrupted   []*pleg.Container
	// unpublished is the time since when the API's status is out of date on purpose.
	unpublished time.Time
	// overwritten means that another writer has changed the API's status. republished is the time
	// of the last correction.
	overwritten bool
	republished time.Time

	seen time.Time // when the worker was made

	results probeResults

	viewMu sync.RWMutex
	view   View
}

// View is a copy of a worker's state as of its last step.
type View struct {
	Pod        *corev1.Pod
	Status     corev1.PodStatus
	Stage      Stage
	Sandboxes  []*pleg.Sandbox
	Containers []*pleg.Container
}

// task is an action in flight.
type task struct{ cancel context.CancelFunc }

// New makes the worker of a pod. observed is what the runtime already has of the pod.
func New(d *Deps, pod *corev1.Pod, observed *pleg.Observed) *Worker {
	w := &Worker{
		Deps: d, log: d.Log.With("pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		pod: pod, static: status.IsStatic(pod), old: *pod.Status.DeepCopy(), observed: observed, tasks: map[string]*task{},
		images: map[string]*images.Image{}, volumeImages: map[string]*runtimeapi.ImageSpec{}, crashes: map[string]crash{},
		problems: map[string]problem{}, podProblem: map[string]problem{}, hidden: map[string]bool{}, replaced: map[string]string{}, messages: map[string]string{},
		resources: map[string]*corev1.ResourceRequirements{}, effective: map[string]corev1.ResourceRequirements{}, seen: d.Now(), startTime: metav1.NewTime(d.Now()).Rfc3339Copy(), plan: &plan{},
	}
	if pod.Status.StartTime != nil {
		w.startTime = *pod.Status.StartTime
	}
	w.probes = &probe.Set{
		Prober: d.Prober, Changed: func() { w.post(func() {}) }, Unhealthy: w.unhealthy, Count: w.countProbe,
	}
	w.adoptStarts()
	w.adoptResources()
	w.adoptRestart()
	w.updateView()
	return w
}

// Update gives the worker a newer version of its pod.
func (w *Worker) Update(pod *corev1.Pod) { w.post(func() { w.updated(pod) }) }

// Removed tells the worker that the source does not have the pod any more.
func (w *Worker) Removed() {
	w.post(func() {
		w.removed = true
		w.Volumes.Freeze(w.pod.UID)
	})
}

// Observe gives the worker an update from the runtime.
func (w *Worker) Observe(u pleg.Update) { w.post(func() { w.observed.Merge(u) }) }

// Fail ends the pod as Failed. A pod that is ending already gets at most the failure's grace period
// from now on.
func (w *Worker) Fail(f Failure) {
	w.post(func() {
		switch {
		case w.failure == nil && w.stage <= Syncing:
			w.failure = &f
		case w.stage == Terminating && f.Grace != nil:
			w.ending.limit = w.Now().Add(time.Duration(*f.Grace) * time.Second)
		}
	})
}

// Kick makes the worker take a step.
func (w *Worker) Kick() { w.post(func() {}) }

// Republish writes the pod's status to a new API object.
func (w *Worker) Republish() { w.post(func() { w.Status.Set(w.pod, w.old) }) }

// View returns the worker's state as of its last step.
func (w *Worker) View() View {
	w.viewMu.RLock()
	defer w.viewMu.RUnlock()
	return w.view
}

// Done is closed when Run has returned.
func (w *Worker) Done() <-chan struct{} { return w.done }

func (w *Worker) post(fn func()) {
	w.inboxMu.Lock()
	w.inbox = append(w.inbox, fn)
	w.inboxMu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run works until nothing is left of the pod or ctx ends. Containers survive the end of ctx.
func (w *Worker) Run(ctx context.Context) {
	defer close(w.done)
	defer w.probes.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.drain(ctx)
			return
		case <-w.wake:
		case <-timer.C:
		}
		w.inboxMu.Lock()
		news := w.inbox
		w.inbox = nil
		w.inboxMu.Unlock()
		for _, fn := range news {
			fn()
		}
		look := w.measuredStep(ctx)
		if w.stage == Gone {
			w.Gone(w.pod.UID)
			return
		}
		timer.Stop()
		if !look.IsZero() {
			timer.Reset(max(look.Sub(w.Now()), time.Millisecond))
		}
	}
}

// drain waits for the actions in flight after the end of their context.
func (w *Worker) drain(context.Context) {
	for len(w.tasks) > 0 {
		w.inboxMu.Lock()
		news := w.inbox
		w.inbox = nil
		w.inboxMu.Unlock()
		for _, fn := range news {
			fn()
		}
		if len(w.tasks) > 0 {
			<-w.wake
		}
	}
}

// run starts an action. When it has ended, the worker's goroutine calls the function that it
// returned. Only one action of a key runs at a time.
func (w *Worker) run(ctx context.Context, key string, action func(ctx context.Context) (apply func())) {
	ctx, cancel := context.WithCancel(ctx)
	t := &task{cancel}
	w.tasks[key] = t
	pod := w.pod
	go func() {
		defer cancel()
		ctx, span := w.traceAction(ctx, key, pod)
		apply := action(ctx)
		span.End()
		w.post(func() {
			if w.tasks[key] == t {
				delete(w.tasks, key)
			}
			if apply != nil {
				apply()
			}
		})
	}()
}

// traceAction starts the span of an action. Its name is the key without the container.
func (w *Worker) traceAction(ctx context.Context, key string, pod *corev1.Pod) (context.Context, trace.Span) {
	if w.Tracer == nil {
		return ctx, trace.Span{}
	}
	action, _, _ := strings.Cut(key, ":")
	return w.Tracer.Begin(ctx, "pod "+action, trace.Text("k8s.pod.uid", string(pod.UID)), trace.Text("k8s.pod.name", pod.Name), trace.Text("k8s.namespace.name", pod.Namespace))
}

// measuredStep takes a step and measures it.
func (w *Worker) measuredStep(ctx context.Context) time.Time {
	operation := "sync"
	if w.stage > Syncing {
		operation = "kill"
	} else if len(w.observed.Sandboxes) == 0 {
		operation = "create"
	}
	began := time.Now()
	defer func() { w.Metrics.Stepped(operation, time.Since(began)) }()
	return w.step(ctx)
}

// step advances the pod and publishes its status. It returns when to take the next step without
// news.
func (w *Worker) step(ctx context.Context) time.Time {
	var look time.Time
	for {
		before := w.stage
		switch w.stage {
		case Syncing:
			look = w.sync(ctx)
		case Terminating:
			look = w.terminate(ctx)
		case Terminated:
			look = w.release(ctx)
		case Released:
			look = w.forget(ctx)
		}
		if w.stage != before {
			w.log.Debug("pod advances", "stage", w.stage, "deleting", w.pod.DeletionTimestamp != nil, "removed", w.removed, "failure", w.failure)
		}
		if w.stage == before || w.stage == Gone {
			break
		}
	}
	if again := w.publish(); !again.IsZero() && (look.IsZero() || again.Before(look)) {
		look = again
	}
	return look
}

// retry records that an action failed, and returns when to try again: after 1 s, doubling up to 10
// s.
func (w *Worker) retry(key string) problem {
	p := w.podProblem[key]
	p.count++
	p.retryAt = w.Now().Add(backoff(p.count))
	w.podProblem[key] = p
	return p
}

func backoff(count int) time.Duration {
	return min(time.Second<<min(count-1, 5), 10*time.Second)
}

// due reports whether a failed action may be tried again. If not, it sets the time of the next
// step.
func (w *Worker) due(key string, p *plan) bool {
	pr, ok := w.podProblem[key]
	if !ok || !w.Now().Before(pr.retryAt) {
		return true
	}
	p.lookAt(pr.retryAt)
	return false
}

func (w *Worker) updated(pod *corev1.Pod) {
	if pod.UID != w.pod.UID {
		return
	}
	before := w.pod
	w.pod = pod
	w.overwritten = !w.static && status.Overwritten(&pod.Status, &w.old)
	w.specChanged(before)
}

// container returns the pod's container with this name.
func (w *Worker) container(name string) *corev1.Container { return spec.FindContainer(w.pod, name) }
