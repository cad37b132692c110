package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet/images"
	"github.com/knarr-project/knarr/internal/kubelet/pleg"
	"github.com/knarr-project/knarr/internal/kubelet/probe"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/kubelet/status"
)

// sync is the step of a pod whose containers should run.
func (w *Worker) sync(ctx context.Context) time.Time {
	if w.mustEnd() {
		w.stage = Terminating
		return time.Time{}
	}
	w.removeInterrupted(ctx)
	w.watchProbes(ctx)
	if look, busy := w.restartAllStep(ctx); busy {
		return look
	}
	p := decide(w.state())
	w.recordBackOffs(p)
	w.plan = p
	if p.finished {
		w.stage = Terminating
		return time.Time{}
	}
	if at := deadline(w.pod, w.startTime.Time); !at.IsZero() {
		p.lookAt(at)
	}
	for _, k := range p.kill {
		if k.reason == killChanged {
			w.replaced[k.container.Name()] = k.container.Id
		}
		w.stop(ctx, k.container, k.message, k.grace, w.containerDeadline(k.grace), nil)
	}
	ready := w.prepare(ctx, p)
	w.refreshVolumes(ctx)
	for _, st := range p.start {
		w.ensureImage(ctx, st.container)
	}
	if ready && p.sandbox {
		w.makeSandbox(ctx, p)
	}
	if sandbox := w.observed.Sandbox(); ready && !p.sandbox && sandbox.Ready() && !w.mustWiden() {
		for _, st := range p.start {
			w.startContainer(ctx, st, sandbox)
		}
	}
	w.resizeStep(ctx, p)
	w.collect(ctx)
	return p.look
}

// mustEnd reports whether the pod must stop.
func (w *Worker) mustEnd() bool {
	if w.failure == nil && pastDeadline(w.pod, w.startTime.Time, w.Now()) {
		w.failure = &Failure{Cause: "DeadlineExceeded", Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
		w.event(corev1.EventTypeNormal, "DeadlineExceeded", "Killing", "%s", w.failure.Message)
	}
	return w.pod.DeletionTimestamp != nil || w.removed || w.failure != nil || status.Terminal(w.old.Phase)
}

func (w *Worker) state() *state {
	busy, started, failed := map[string]bool{}, map[string]bool{}, map[string]probe.Kind{}
	for id, c := range w.observed.Containers {
		if w.tasks["kill:"+id] != nil {
			busy[c.Name()] = true
		}
		if c.Running() {
			started[id], failed[id] = w.probes.Started(id), w.probes.Failed(id)
		}
	}
	each(w.pod, func(c *corev1.Container, _ containerKind) {
		if w.tasks["container:"+c.Name] != nil {
			busy[c.Name] = true
		}
	})
	return &state{
		pod: w.pod, observed: w.observed, old: &w.old, now: w.Now(), crashes: w.crashes, problems: w.problems, busy: busy, hidden: w.hidden,
		started: started, failed: failed,
	}
}

type containerKind int

const (
	initContainer containerKind = iota
	mainContainer
	ephemeralContainer
)

// each calls fn with each container of the pod.
func each(pod *corev1.Pod, fn func(c *corev1.Container, kind containerKind)) {
	for i := range pod.Spec.InitContainers {
		fn(&pod.Spec.InitContainers[i], initContainer)
	}
	for i := range pod.Spec.Containers {
		fn(&pod.Spec.Containers[i], mainContainer)
	}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		fn(&c, ephemeralContainer)
	}
}

// prepare makes the pod's folders, cgroup and volumes. It returns true when all of them exist.
func (w *Worker) prepare(ctx context.Context, p *plan) bool {
	if w.prepared {
		return true
	}
	if w.tasks["prepare"] != nil || !w.due("prepare", p) {
		return false
	}
	if w.sandboxConfig == nil {
		if err := w.configureSandbox(ctx); err != nil {
			w.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", "Starting", "Failed to create pod sandbox: %v", err)
			p.lookAt(w.retry("prepare").retryAt)
			return false
		}
	}
	pod, applied, dir, running := w.pod, w.resize.applied, w.dir(), len(w.observed.Containers) > 0
	w.run(ctx, "prepare", func(ctx context.Context) func() {
		var parent string
		err := errors.Join(os.MkdirAll(dir, 0o750), os.MkdirAll(w.Logs.Pod(pod), 0o755))
		if err == nil {
			if parent, err = w.ensureCgroup(pod, applied); err != nil {
				w.event(corev1.EventTypeWarning, "FailedCreatePodContainer", "Starting", "unable to ensure pod container exists: %v", err)
			}
		}
		if err != nil {
			return func() { w.retry("prepare") }
		}
		preparing := w.Now()
		if !w.devicesReady(ctx, pod, running) {
			return func() { w.retry("prepare") }
		}
		began := time.Now()
		mounts, err := w.Volumes.Mount(ctx, pod, dir)
		w.Metrics.Volumes(MountVolumes, pod, time.Since(began), err)
		w.note(pod, spans.Volumes, "", "", preparing, err)
		if err != nil {
			if ctx.Err() == nil {
				w.event(corev1.EventTypeWarning, "FailedMount", "Mounting", "%v", err)
			}
			return func() { w.retry("prepare") }
		}
		failpoint.Here("volumes-mounted")
		return func() {
			delete(w.podProblem, "prepare")
			w.prepared, w.mounts, w.cgroupParent, w.shown = true, mounts, parent, pod
			w.sandboxConfig.Linux.CgroupParent = parent
			if applied == nil {
				w.resize.applied = pod
			}
		}
	})
	return false
}

// ensureCgroup makes the pod's cgroup. During a resize, the cgroup keeps room for containers with
// the resources from before.
func (w *Worker) ensureCgroup(pod, before *corev1.Pod) (parent string, err error) {
	if before == nil {
		return w.Cgroups.Ensure(pod)
	}
	if parent, err = w.Cgroups.Ensure(pod); err == nil {
		return parent, nil
	}
	if err := w.Cgroups.Widen(pod, before); err != nil {
		return "", err
	}
	return parent, nil
}

// refreshVolumes updates the downward API's volumes. A new ephemeral container may also need
// volumes that no other container uses.
func (w *Worker) refreshVolumes(ctx context.Context) {
	if !w.prepared || w.shown == w.pod || w.tasks["volumes"] != nil {
		return
	}
	before, pod := w.shown, w.pod
	w.shown = pod
	for i := range pod.Spec.EphemeralContainers {
		for _, mount := range pod.Spec.EphemeralContainers[i].VolumeMounts {
			if _, mounted := w.mounts[mount.Name]; !mounted && len(before.Spec.EphemeralContainers) < len(pod.Spec.EphemeralContainers) {
				w.prepared = false // mounting is idempotent
				return
			}
		}
	}
	if before.Generation == pod.Generation && maps.Equal(before.Labels, pod.Labels) && maps.Equal(before.Annotations, pod.Annotations) {
		return
	}
	w.run(ctx, "volumes", func(ctx context.Context) func() {
		if err := w.Volumes.Refresh(ctx, pod); err != nil && ctx.Err() == nil {
			w.Log.Warn("cannot update the pod's volumes; it is tried again within a minute", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
		}
		return nil
	})
}

func (w *Worker) dir() string { return spec.PodDir(w.RootDir, w.pod.UID) }

func (w *Worker) configureSandbox(ctx context.Context) error {
	handler, err := w.Host.RuntimeHandler(ctx, w.pod)
	if err != nil {
		return err
	}
	hostname, err := spec.SandboxHostname(w.pod, w.ClusterDomain)
	if err != nil {
		return err
	}
	users, err := w.Users.Of(w.pod)
	if err != nil {
		return err
	}
	dns, warnings := w.Host.DNS(w.pod)
	for _, warning := range warnings {
		w.event(corev1.EventTypeWarning, "DNSConfigForming", "Starting", "%s", warning)
	}
	w.handler = handler
	w.sandboxConfig = spec.Sandbox(w.pod, spec.SandboxOptions{
		LogDir: w.Logs.Pod(w.pod), DNS: dns, Hostname: hostname, SeccompRoot: w.SeccompRoot, Machine: w.Host.Machine(), UserNamespace: users,
	})
	return nil
}

// makeSandbox makes a new sandbox. It stops old ones first.
func (w *Worker) makeSandbox(ctx context.Context, p *plan) {
	if w.tasks["sandbox"] != nil || !w.due("sandbox", p) {
		return
	}
	attempt := uint32(0)
	var dead []string
	for _, s := range w.observed.Sandboxes {
		attempt = max(attempt, s.Metadata.GetAttempt()+1)
		dead = append(dead, s.Id)
	}
	w.sandboxConfig.Metadata.Attempt = attempt
	pod, config, handler, mapped := w.pod, w.sandboxConfig, w.handler, mapsUsers(w.pod)
	if len(dead) > 0 {
		w.event(corev1.EventTypeNormal, "SandboxChanged", "Starting", "Pod sandbox changed, it will be killed and re-created.")
	}
	w.run(ctx, "sandbox", func(ctx context.Context) func() {
		fail := func(what string, err error) func() {
			if ctx.Err() == nil {
				w.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", "Starting", "Failed to %s pod sandbox: %v", what, err)
			}
			return func() { w.retry("sandbox") }
		}
		for _, id := range dead {
			if err := w.Runtime.StopPodSandbox(ctx, id); err != nil {
				return fail("stop", err)
			}
		}
		failpoint.Here("sandbox-create")
		began := w.Now()
		id, err := w.Runtime.RunPodSandbox(ctx, config, handler)
		w.note(pod, spans.Sandbox, "", "", began, err)
		w.Metrics.PodMade(mapped, err)
		if err != nil {
			return fail("create", err)
		}
		failpoint.Here("sandbox-created")
		made := time.Now() // a list from before may lack it
		resp, err := w.Runtime.PodSandboxStatus(ctx, id, false)
		if err != nil {
			return fail("read the status of the", err)
		}
		return func() {
			delete(w.podProblem, "sandbox")
			w.observed.MergeSandbox(resp.Status, made)
		}
	})
}

// ensureImage gets the image of a container that is about to start.
func (w *Worker) ensureImage(ctx context.Context, c *corev1.Container) {
	key := "image:" + c.Name
	if w.images[c.Name] != nil || w.tasks[key] != nil || w.tasks["container:"+c.Name] != nil || w.sandboxConfig == nil {
		return
	}
	pod, config, container := w.pod, w.sandboxConfig, *c
	w.run(ctx, key, func(ctx context.Context) func() {
		began := w.Now()
		image, err := w.Images.Ensure(ctx, pod, container.Image, container.ImagePullPolicy, config, w.containerEvents(&container))
		if ctx.Err() != nil {
			return nil
		}
		w.noteImage(pod, container.Name, container.Image, image, began, err)
		if err == nil {
			err = w.imageVolumes(ctx, pod, &container, config)
		}
		return func() {
			if err == nil {
				w.images[container.Name] = image
				if p, ok := w.problems[container.Name]; ok && imageReason(p.reason) {
					delete(w.problems, container.Name)
				}
				return
			}
			p := problem{reason: images.ReasonErrImagePull, message: err.Error(), retryAt: w.Now().Add(2 * time.Second)}
			var known *images.Error
			if errors.As(err, &known) {
				p.reason, p.message, p.retryAt = known.Reason, known.Message, known.RetryAt
				if known.Reason == images.ReasonErrImagePull {
					p.retryAt = w.Now().Add(3 * time.Second)
				}
			}
			w.containerEvent(&container, corev1.EventTypeWarning, "Failed", "Pulling", "Error: %s", p.reason)
			w.problems[container.Name] = p
		}
	})
}

func imageReason(r string) bool {
	switch r {
	case images.ReasonErrImagePull, images.ReasonBackOff, images.ReasonNeverPull, images.ReasonInvalidName, images.ReasonInspectFailed:
		return true
	}
	return false
}

// imageVolumes gets the images of the pod's image volumes.
func (w *Worker) imageVolumes(ctx context.Context, pod *corev1.Pod, c *corev1.Container, config *runtimeapi.PodSandboxConfig) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil {
			continue
		}
		began := w.Now()
		image, err := w.Images.Ensure(ctx, pod, v.Image.Reference, v.Image.PullPolicy, config, w.containerEvents(c))
		w.noteImage(pod, c.Name, v.Image.Reference, image, began, err)
		if err != nil {
			return err
		}
		name, ref := v.Name, &runtimeapi.ImageSpec{Image: image.Ref, UserSpecifiedImage: v.Image.Reference}
		w.post(func() { w.volumeImages[name] = ref })
	}
	return nil
}

// kindOf names the kind of a container in metrics.
func kindOf(pod *corev1.Pod, name string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return "init_container"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return "ephemeral_container"
		}
	}
	return "container"
}

// startContainer makes and starts a container whose image is present.
func (w *Worker) startContainer(ctx context.Context, st start, sandbox *pleg.Sandbox) {
	c := st.container.DeepCopy()
	image := w.images[c.Name]
	key := "container:" + c.Name
	if image == nil || w.tasks[key] != nil {
		return
	}
	if len(st.container.VolumeMounts) > 0 {
		for i := range w.pod.Spec.Volumes {
			if v := &w.pod.Spec.Volumes[i]; v.Image != nil && w.volumeImages[v.Name] == nil {
				return // the image has arrived just now; its message is in the inbox
			}
		}
	}
	delete(w.images, c.Name) // the next attempt asks again
	if !st.after.IsZero() {
		w.crashes[c.Name] = w.crashes[c.Name].next(w.Now(), st.after, cmp.Or(w.CrashMax, crashBackoffMax))
	}
	pod, config := w.pod, w.sandboxConfig
	if config.Metadata.Attempt != sandbox.Metadata.GetAttempt() {
		config.Metadata.Attempt = sandbox.Metadata.GetAttempt()
	}
	ips := sandbox.IPs()
	if pod.Spec.HostNetwork {
		ips = w.Host.IPs()
	}
	options := w.containerOptions(pod, c, st, image, ips)
	w.run(ctx, key, func(ctx context.Context) func() {
		reason, err := w.create(ctx, pod, c, sandbox.Id, config, options)
		w.Metrics.ContainerStarted(mapsUsers(pod), kindOf(pod, c.Name), reason)
		return func() {
			if err == nil {
				delete(w.problems, c.Name)
				return
			}
			p := w.problems[c.Name]
			if p.reason != reason {
				p.count = 0
			}
			p = problem{reason: reason, message: err.Error(), count: p.count + 1}
			p.retryAt = w.Now().Add(backoff(p.count))
			w.problems[c.Name] = p
		}
	})
}

func (w *Worker) containerOptions(pod *corev1.Pod, c *corev1.Container, st start, image *images.Image, ips []string) spec.ContainerOptions {
	volumes := map[string]string{}
	for name, m := range w.mounts {
		volumes[name] = m.HostPath
	}
	o := spec.ContainerOptions{
		Attempt: st.attempt, Image: c.Image, ImageRef: image.Ref, ImageUser: image.User, PodDir: w.dir(), Volumes: w.mounts,
		Facts:   spec.Facts{PodIPs: ips, HostIPs: w.Host.IPs(), Allocatable: w.Host.Allocatable(), VolumePaths: volumes},
		Sources: w.Sources, ClusterDomain: w.ClusterDomain, SeccompRoot: w.SeccompRoot, SeccompDefault: w.SeccompDefault, Machine: w.Host.Machine(),
		TargetID: st.target, RecursiveReadOnly: w.Host.RecursiveReadOnly(w.handler),
		ImageVolumes: map[string]*runtimeapi.ImageSpec{},
	}
	for name, ref := range w.volumeImages {
		o.ImageVolumes[name] = ref
	}
	if w.sandboxConfig.Linux != nil {
		o.UserNamespace = w.sandboxConfig.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	}
	o.SubPath = w.subPath(c.Name)
	return o
}

// create makes and starts a container and runs its postStart hook. The reason is for the
// container's status.
func (w *Worker) create(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandboxID string, sandboxConfig *runtimeapi.PodSandboxConfig,
	o spec.ContainerOptions) (reason string, err error) {
	devices, err := w.Devices.Container(ctx, pod, c)
	if err != nil {
		w.containerEvent(c, corev1.EventTypeWarning, "Failed", "Starting", "Error: %v", err)
		return "CreateContainerConfigError", err
	}
	o.Devices = devices
	config, err := spec.Container(ctx, pod, c, o)
	if err != nil {
		w.containerEvent(c, corev1.EventTypeWarning, "Failed", "Starting", "Error: %v", err)
		return "CreateContainerConfigError", err
	}
	w.Placement.Pin(pod, c.Name, config.Linux.Resources)
	failpoint.Here("container-create")
	asked, began := time.Now(), w.Now()
	id, err := w.Runtime.CreateContainer(ctx, sandboxID, config, sandboxConfig)
	w.note(pod, spans.Create, c.Name, "", began, err)
	if err != nil {
		w.containerEvent(c, corev1.EventTypeWarning, "Failed", "Starting", "Error: %v", err)
		return "CreateContainerError", err
	}
	made := time.Now() // a list from before may lack it
	w.containerEvent(c, corev1.EventTypeNormal, "Created", "Starting", "Container created")
	hook := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	w.post(func() {
		if hook {
			w.hidden[id] = true
		}
		w.resized(pod, id, c)
		w.observed.MergeContainer(&runtimeapi.ContainerStatus{
			Id: id, Metadata: config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: asked.UnixNano(), Image: config.Image,
			ImageRef: o.ImageRef, Labels: config.Labels, Annotations: config.Annotations,
		}, sandboxID, made)
	})
	failpoint.Here("container-created")
	began = w.Now()
	err = w.Runtime.StartContainer(ctx, id)
	w.note(pod, spans.Start, c.Name, "", began, err)
	if err != nil {
		w.containerEvent(c, corev1.EventTypeWarning, "Failed", "Starting", "Error: %v", err)
		w.inspect(ctx, id, sandboxID)
		return "RunContainerError", err
	}
	failpoint.Here("container-started")
	w.containerEvent(c, corev1.EventTypeNormal, "Started", "Starting", "Container started")
	if err := w.Logs.Link(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, c.Name, id, filepath.Join(sandboxConfig.LogDirectory, config.LogPath)); err != nil {
		w.log.Warn("cannot link a container's log for collectors", "container", c.Name, "error", err)
	}
	w.inspect(ctx, id, sandboxID)
	if hook {
		began := w.Now()
		err := w.hook(ctx, pod, c, id, c.Lifecycle.PostStart, o.Facts.PodIPs)
		w.note(pod, spans.PostStart, c.Name, "", began, err)
		w.post(func() { delete(w.hidden, id) })
		if err != nil {
			w.containerEvent(c, corev1.EventTypeWarning, "FailedPostStartHook", "Starting", "PostStartHook failed")
			w.log.Info("postStart hook failed", "container", c.Name, "error", err)
			w.containerEvent(c, corev1.EventTypeNormal, "Killing", "Stopping", "FailedPostStartHook")
			grace := int64(30)
			if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
				grace = *g
			}
			if err := w.Runtime.StopContainer(ctx, id, grace); err != nil {
				w.log.Warn("cannot stop a container whose postStart hook failed", "container", c.Name, "error", err)
			}
			w.inspect(ctx, id, sandboxID)
			return "PostStartHookError", fmt.Errorf("PostStartHookError")
		}
	}
	return "", nil
}

// inspect reads a container's state from the runtime.
func (w *Worker) inspect(ctx context.Context, id, sandboxID string) {
	asked := time.Now()
	resp, err := w.Runtime.ContainerStatus(ctx, id, false)
	if err != nil || resp.GetStatus() == nil {
		return // the next relist will show it
	}
	w.post(func() { w.observed.MergeContainer(resp.Status, sandboxID, asked) })
}
