package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/kubelet/cgroup"
	"github.com/knarr-project/knarr/internal/kubelet/eviction"
	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/measure"
	"github.com/knarr-project/knarr/internal/kubelet/node"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/kubelet/shutdown"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/stats"
	"github.com/knarr-project/knarr/internal/kubelet/status"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// Kubelet is the node agent.
type Kubelet struct {
	Config
	log       *slog.Logger
	node      *node.Manager
	status    *status.Manager
	pleg      *pleg.Generator
	images    *images.Manager
	deps      *worker.Deps
	machine   node.Machine
	hostDNS   spec.DNS
	podView   client.ViewOf[*corev1.Pod]
	services  client.ViewOf[*corev1.Service]
	nodes     client.ViewOf[*corev1.Node]
	static    *staticPods
	stats     *stats.Collector
	devices   *nodeDevices
	groups    *cgroup.Manager // nil if the runtime makes the pods' cgroups
	metrics   *metrics
	logs      *logs.Folders
	imageGC   *images.Collector
	evictions *eviction.Manager
	places    *places
	shutdown  *shutdown.Manager
	// limitsSwap means that the kernel can limit a container's swap.
	limitsSwap bool

	ctx context.Context // Run's context; workers of orphans start whenever the runtime reports one
	wg  sync.WaitGroup  // workers

	// The goroutine of housekeeping owns these: errors that are reported already.
	unenforced string
	stuck      []types.UID

	mu      sync.Mutex
	workers map[types.UID]*worker.Worker
	// observed keeps the results of the first relist until the pods' workers take them.
	observed map[types.UID]*pleg.Observed
	names    map[types.UID]types.NamespacedName
	admitted map[types.UID]*corev1.Pod
	// ready is true once all sources have delivered their pods; any other pod in the runtime is an
	// orphan.
	ready bool
}

// New makes a node agent. Until Run it only creates folders.
func New(c Config) (*Kubelet, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	measured := measure.New(c.NodeName)
	c.Runtime, c.Images = measured.Runtime(c.Runtime), measured.Images(c.Images)
	c.Client = measured.Client(c.Client, c.Server)
	machine, err := node.ReadMachine(c.RootDir)
	if err != nil {
		return nil, fmt.Errorf("kubelet: inspect the machine: %w", err)
	}
	if *c.Settings.FailCgroupV1 && !c.NoCgroups && !cgroup.V2() {
		return nil, errors.New("kubelet: failCgroupV1 is true, and this machine has cgroup v1: mount cgroup v2 alone, or leave the field out")
	}
	if err := checkMemory(&c, machine, cgroup.V2(), cgroup.LimitsSwap()); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if c.Settings.ProtectKernelDefaults {
		if err := checkKernelDefaults("/proc/sys"); err != nil {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
	}
	hostDNS, err := readHostDNS(*c.Settings.ResolverConfig)
	if err != nil {
		c.Logger.Warn("cannot read the host's resolv.conf; pods get none of its servers", "path", *c.Settings.ResolverConfig, "error", err)
	}
	folders, err := logs.Open(c.RootDir, c.LogsDir)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	k := &Kubelet{
		Config: c, logs: folders, log: c.Logger, machine: machine, hostDNS: hostDNS,
		workers: map[types.UID]*worker.Worker{}, observed: map[types.UID]*pleg.Observed{}, names: map[types.UID]types.NamespacedName{},
		admitted: map[types.UID]*corev1.Pod{}, limitsSwap: cgroup.LimitsSwap(),
	}
	if !c.NoCgroups {
		k.groups = &cgroup.Manager{
			Root: c.CgroupRoot, NoCFSQuota: !*c.Settings.CPUCFSQuota, QuotaPeriod: c.Settings.CPUCFSQuotaPeriod.Microseconds(), PodPIDs: *c.Settings.PodPidsLimit,
		}
	}
	k.static = &staticPods{k: k, kick: make(chan struct{}, 1), wanted: map[string][]*corev1.Pod{}}
	k.status = status.NewManager(c.Client, c.Logger, k.apiPod)
	k.status.Synced = measured.StatusSynced
	k.pleg = &pleg.Generator{Runtime: c.Runtime, Sink: k.observe, Known: k.digest, Pods: k.observedPods, Relisted: measured.Relisted, Log: c.Logger}
	records, err := images.OpenRecords(filepath.Join(c.RootDir, "image_manager"), c.Now, c.Logger)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	k.images = images.NewManager(c.Images, records, parallelPulls(c.Settings), objects{k}.Secret)
	k.images.Policy = images.Policy{Verify: c.Settings.ImagePullCredentialsVerificationPolicy, Allowlist: c.Settings.PreloadedImagesVerificationAllowlist}
	k.devices = newNodeDevices(k)
	k.shutdown = newShutdown(k)
	ofNode, err := k.nodeConfig()
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	k.node = node.New(ofNode)
	k.images.Limit = pullLimit(c.Settings)
	if k.groups != nil {
		k.groups.All = k.podLimits()
	}
	k.metrics = newMetrics(k, measured)
	k.metrics.Add(k.shutdown.Collectors()...)
	measure := stats.Config{
		NodeName: c.NodeName, Runtime: c.Runtime, Images: c.Images, RootDir: c.RootDir, LogsDir: c.LogsDir, Pods: k.statsPods, PIDs: c.PIDs, Now: c.Now,
	}
	measure.Machine = machine
	if k.groups != nil {
		measure.Groups = k.groups.Name
	}
	if m, ok := c.Volumes.(volumeMeasurer); ok {
		measure.Volumes = m.Measurements
	}
	k.stats = stats.New(measure)
	k.imageGC = &images.Collector{
		MinAge: c.Settings.ImageMinimumGCAge.Duration, MaxAge: c.Settings.ImageMaximumGCAge.Duration,
		Images: c.Images, InUse: k.imagesInUse, Listed: k.images.Listed, High: int(*c.Settings.ImageGCHighThresholdPercent), Low: int(*c.Settings.ImageGCLowThresholdPercent), Now: c.Now,
	}
	if k.evictions, err = k.newEvictions(); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	if k.places, err = newPlaces(k); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	k.places.topology.Add(k.devices.plugins.Provider())
	if err := k.addCredentialPlugins(); err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	return k, nil
}

// readHostDNS reads the host's resolv.conf. Without a path, pods get nothing from the host.
func readHostDNS(path string) (spec.DNS, error) {
	if path == "" {
		return spec.DNS{}, nil
	}
	return spec.ReadResolvConf(path)
}

// parallelPulls is the largest number of concurrent image pulls; 0 means no limit.
func parallelPulls(s *settings.Settings) int {
	switch {
	case *s.SerializeImagePulls:
		return 1
	case s.MaxParallelImagePulls != nil:
		return int(*s.MaxParallelImagePulls)
	}
	return 0
}

// pullLimit bounds the rate of image pulls; nil means no limit.
func pullLimit(s *settings.Settings) flowcontrol.RateLimiter {
	if *s.RegistryPullQPS == 0 {
		return nil
	}
	return flowcontrol.NewTokenBucketRateLimiter(float32(*s.RegistryPullQPS), max(int(s.RegistryBurst), 1))
}

// Run works until ctx ends or the Node turns out to belong to another machine. Containers keep
// running.
func (k *Kubelet) Run(ctx context.Context) error {
	// The CRI client logs each error that it also returns; returning is enough.
	// The API server, which may be in another process, knows whether it records causes.
	ctx, cancel := context.WithCancel(because.Track(klog.NewContext(ctx, klog.Logger{})))
	defer cancel()
	var wg sync.WaitGroup
	start := func(run func(context.Context)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			run(ctx)
		}()
	}
	var lost error // set if the Node belongs to another machine
	keepNode := sync.OnceFunc(func() {
		start(func(ctx context.Context) {
			if lost = k.node.Run(ctx); lost != nil {
				cancel()
			}
		})
	})
	if err := k.open(ctx, keepNode); err != nil {
		cancel()
		wg.Wait()
		if lost != nil {
			return lost
		}
		return fmt.Errorf("kubelet: %w", err)
	}
	k.deps, k.ctx = k.workerDeps(), ctx
	start(k.status.Run)
	keepNode()
	serve, err := k.serve(ctx)
	if err != nil {
		cancel()
		wg.Wait()
		return fmt.Errorf("kubelet: %w", err)
	}
	start(serve)
	healthz, err := k.serveHealthz(ctx)
	if err != nil {
		cancel()
		wg.Wait()
		return fmt.Errorf("kubelet: %w", err)
	}
	start(healthz)
	nodeDone := k.watchNode(ctx)
	podsDone := k.watchPods(ctx)
	start(k.watchStatic)
	start(k.pleg.Run)
	start(k.devices.run)
	start(k.places.run)
	start(k.housekeeping)
	start(k.rotateLogs)
	start(k.stats.Run)
	start(k.evictions.Run)
	start(k.shutdown.Run)
	<-ctx.Done()
	<-podsDone
	<-nodeDone
	k.wg.Wait()
	wg.Wait()
	return lost
}

// open lists the runtime's pods and opens the views. It waits for a runtime that is still starting.
// Meanwhile it calls waiting, which registers the node as not ready.
func (k *Kubelet) open(ctx context.Context, waiting func()) error {
	told := ""
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := k.node.AskRuntime(ctx)
		if err == nil {
			if err = k.pleg.Relist(ctx); err == nil {
				break
			}
		}
		if told != err.Error() {
			told = err.Error()
			k.log.Info("waiting for the container runtime", "error", err)
		}
		waiting()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	var err error
	if k.services, err = client.Open[*corev1.Service](ctx, k.Client, client.Scope{}); err != nil {
		return fmt.Errorf("watch services: %w", err)
	}
	if k.nodes, err = client.Open[*corev1.Node](ctx, k.Client, client.Scope{FieldSelector: "metadata.name=" + k.NodeName}); err != nil {
		return fmt.Errorf("watch the node: %w", err)
	}
	if k.podView, err = client.Open[*corev1.Pod](ctx, k.Client, client.Scope{FieldSelector: "spec.nodeName=" + k.NodeName}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	return nil
}

func (k *Kubelet) workerDeps() *worker.Deps {
	var groups worker.Cgroups = noCgroups{}
	if k.groups != nil {
		groups = measuredCgroups{k.groups, k.metrics.Metrics}
	}
	return &worker.Deps{
		Tracer: k.Tracer, Spans: k.Spans, Runtime: k.Runtime, RuntimeName: k.node.RuntimeName(), Images: k.images, Volumes: k.Volumes, Cgroups: groups, Devices: k.devices, Placement: k.places, Status: k.status,
		Client: k.Client, Events: k.Events, Prober: &probe.Prober{Runtime: k.Runtime}, Sources: objects{k}, Host: host{k},
		Users:   &worker.UserNamespaces{RootDir: k.RootDir, First: 65536 * 2, Count: 1024, PerPod: uint32(*k.Settings.UserNamespaces.IDsPerPod)},
		RootDir: k.RootDir, Logs: k.logs, ClusterDomain: k.Settings.ClusterDomain, SeccompRoot: k.RootDir + "/seccomp", SeccompDefault: *k.Settings.SeccompDefault,
		CrashMax: k.Settings.CrashLoopBackOff.MaxContainerRestartPeriod.Duration,
		Now:      k.Now, Log: k.log, Gone: k.gone, Metrics: k.metrics, Fits: k.resizeFits, Admitted: k.admitAlways,
	}
}

// measuredCgroups measures the operations on pods' cgroups.
type measuredCgroups struct {
	worker.Cgroups
	m *measure.Metrics
}

func (c measuredCgroups) Ensure(pod *corev1.Pod) (string, error) {
	began := time.Now()
	defer func() { c.m.Cgroup("create", time.Since(began)) }()
	return c.Cgroups.Ensure(pod)
}

func (c measuredCgroups) Remove(uid types.UID) error {
	began := time.Now()
	defer func() { c.m.Cgroup("destroy", time.Since(began)) }()
	return c.Cgroups.Remove(uid)
}

type noCgroups struct{}

func (noCgroups) Ensure(*corev1.Pod) (string, error) { return "", nil }
func (noCgroups) Widen(_, _ *corev1.Pod) error       { return nil }
func (noCgroups) Remove(types.UID) error             { return nil }
func (noCgroups) MemoryUsage(*corev1.Pod) (int64, error) {
	return 0, errors.New("the runtime makes the pods' cgroups")
}

// apiPod returns the API's version of a pod; for a static pod, its mirror.
func (k *Kubelet) apiPod(pod *corev1.Pod) (*corev1.Pod, bool) {
	p, ok := k.podView.Get(pod.Namespace, pod.Name)
	if !ok {
		return nil, false
	}
	if status.IsStatic(pod) {
		return p, p.Annotations[spec.AnnotationConfigMirror] == string(pod.UID) || p.Annotations[spec.AnnotationConfigHash] == string(pod.UID)
	}
	return p, p.UID == pod.UID
}

// watchNode registers the node again as soon as its object is deleted.
func (k *Kubelet) watchNode(ctx context.Context) (done <-chan struct{}) {
	_, done = k.nodes.Subscribe(ctx, func(e client.TypedEvent[*corev1.Node]) {
		if e.Type == client.Deleted {
			k.log.Warn("the node was deleted from the cluster while it works; registering it again (stop knarr first to remove it for good)", "node", k.NodeName)
			k.node.Kick()
		}
	})
	return done
}

// watchPods starts a worker for every pod of the node.
func (k *Kubelet) watchPods(ctx context.Context) (done <-chan struct{}) {
	synced, done := k.podView.Subscribe(ctx, func(e client.TypedEvent[*corev1.Pod]) { k.podEvent(ctx, e) })
	select {
	case <-synced:
	case <-ctx.Done():
	}
	return done
}

func (k *Kubelet) podEvent(ctx context.Context, e client.TypedEvent[*corev1.Pod]) {
	pod := e.Object
	if _, mirror := pod.Annotations[spec.AnnotationConfigMirror]; mirror {
		k.mirrorEvent(e)
		return
	}
	if e.Type == client.Deleted {
		k.release(pod.UID)
		if w := k.worker(pod.UID); w != nil {
			w.Removed()
		}
		return
	}
	if w := k.worker(pod.UID); w != nil {
		w.Update(pod)
		return
	}
	k.add(ctx, pod)
}

// release gives away what a pod was admitted for. The scheduler does not count a force-deleted pod
// any more, so its successor is admitted while its containers still stop.
func (k *Kubelet) release(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.admitted, uid)
}

func (k *Kubelet) worker(uid types.UID) *worker.Worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers[uid]
}

// Workers lists the pods' workers.
func (k *Kubelet) Workers() []*worker.Worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*worker.Worker, 0, len(k.workers))
	for _, w := range k.workers {
		out = append(out, w)
	}
	return out
}

// add admits a pod and starts its worker.
func (k *Kubelet) add(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	observed := k.observed[pod.UID]
	delete(k.observed, pod.UID)
	k.mu.Unlock()
	adopted := observed != nil && len(observed.Containers) > 0
	if observed == nil {
		observed = pleg.NewObserved()
	}
	w := worker.New(k.deps, pod, observed)
	if !adopted && pod.DeletionTimestamp == nil && !status.Terminal(pod.Status.Phase) {
		if refusal := k.admit(pod); refusal != nil {
			w.Fail(*refusal)
		}
	} else if !status.Terminal(pod.Status.Phase) {
		k.admitAlways(pod)
		if k.groups != nil {
			k.groups.Adopt(pod)
		}
	}
	k.start(ctx, w, pod.UID)
}

func (k *Kubelet) start(ctx context.Context, w *worker.Worker, uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.workers[uid] != nil || ctx.Err() != nil {
		return
	}
	k.workers[uid] = w
	k.wg.Add(1)
	go func() {
		defer k.wg.Done()
		w.Run(ctx)
	}()
}

// gone forgets a pod that has left nothing behind.
func (k *Kubelet) gone(uid types.UID) {
	if w := k.worker(uid); w != nil {
		pod := w.View().Pod
		k.metrics.forget(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid)
	}
	k.mu.Lock()
	delete(k.workers, uid)
	delete(k.admitted, uid)
	k.mu.Unlock()
	k.places.topology.Release(uid)
	k.static.look()
}

// observe passes a runtime update to the pod's worker.
func (k *Kubelet) observe(u pleg.Update) {
	k.mu.Lock()
	w, ready := k.workers[u.UID], k.ready
	if w == nil && !ready {
		if k.observed[u.UID] == nil {
			k.observed[u.UID] = pleg.NewObserved()
		}
		k.observed[u.UID].Merge(u)
		k.names[u.UID] = types.NamespacedName{Namespace: u.Namespace, Name: u.Name}
	}
	k.mu.Unlock()
	switch {
	case w != nil:
		w.Observe(u)
	case ready && u.Complete && len(u.Sandboxes)+len(u.Containers) > 0:
		o := pleg.NewObserved()
		o.Merge(u)
		k.orphan(u.UID, types.NamespacedName{Namespace: u.Namespace, Name: u.Name}, o)
	}
}

// digest describes what a pod's worker knows of the runtime (pleg.Digest).
func (k *Kubelet) digest(uid types.UID) (string, bool) {
	w := k.worker(uid)
	if w == nil {
		return "", false
	}
	v := w.View()
	return pleg.Digest(v.Sandboxes, v.Containers), true
}

// observedPods are the pods that, as far as their workers know, have something in the runtime.
func (k *Kubelet) observedPods() []types.UID {
	var out []types.UID
	for _, w := range k.Workers() {
		if v := w.View(); len(v.Sandboxes)+len(v.Containers) > 0 {
			out = append(out, v.Pod.UID)
		}
	}
	return out
}
