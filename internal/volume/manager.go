package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/failpoint"
)

const (
	// volumesDir is relative to the pod's folder: volumes/PLUGIN/NAME, the same as upstream's.
	volumesDir = "volumes"
	// resyncPeriod is the interval for comparing projections with their objects and for renewing
	// tokens.
	resyncPeriod = time.Minute
	// mountTimeout limits mounting or unmounting one volume; the caller tries again.
	mountTimeout = 2*time.Minute + 10*time.Second
)

// Options configures a Manager.
type Options struct {
	Client   client.Interface
	NodeName string
	// Allocatable returns the node's resources for pods, which replace missing container limits.
	// May be nil.
	Allocatable func() corev1.ResourceList
	Log         *slog.Logger
	Now         func() time.Time
	// Local attaches a volume of the node's own provisioner, and returns its folder or its device.
	// If nil, such volumes are mounted from the path in the PersistentVolume.
	Local func(ctx context.Context, v *corev1.PersistentVolume) (path string, err error)
	// CSI finds drivers and stages their volumes. If nil, there are no CSI volumes.
	CSI *CSI
}

// Manager mounts volumes. It is safe for concurrent use. A volume that hangs delays only itself and
// the end of its pod.
type Manager struct {
	Options
	objects    *objects
	tokens     *tokens
	operations *operations // by pod and volume
	resync     time.Duration

	mu      sync.Mutex // guards what follows
	pods    map[types.UID]*mounted
	pending map[types.UID]bool // pods whose projections may have changed
	wake    chan struct{}
}

// mounted is the Manager's record of one pod.
type mounted struct {
	frozen atomic.Bool // the API no longer has the pod, so its projections stay unchanged
	// keeping is true while a goroutine updates the pod's volumes.
	keeping atomic.Bool

	// projecting is held while projections change; it guards the fields below.
	projecting   sync.Mutex
	shown        map[string]payload // current content of projections by volume name
	failingSince time.Time          // since when refreshing fails, or zero

	mu   sync.Mutex // guards what follows
	pod  *corev1.Pod
	dir  string
	gone bool
	// CSI volumes, by name, that this process has published, that their driver wants to be
	// published repeatedly, or that may grow
	published, republish, growing map[string]bool
}

// current returns the pod and its folder. gone means that its volumes are being unmounted.
func (k *mounted) current() (pod *corev1.Pod, dir string, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pod, k.dir, k.gone
}

// New makes a Manager. Projections are updated while Run runs.
func New(options Options) *Manager {
	if options.Log == nil {
		options.Log = slog.Default()
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	m := &Manager{
		Options:    options,
		tokens:     &tokens{client: options.Client, now: options.Now, issued: map[tokenKey]token{}},
		operations: newOperations(), resync: resyncPeriod,
		pods: map[types.UID]*mounted{}, pending: map[types.UID]bool{}, wake: make(chan struct{}, 1),
	}
	m.objects = newObjects(options.Client, options.Log, m.markPending)
	return m
}

// Run keeps projections current until ctx ends. It updates them when an object changes, and every
// minute. Each pod is updated by a goroutine of its own.
func (m *Manager) Run(ctx context.Context) {
	var working sync.WaitGroup
	working.Go(func() { m.objects.run(ctx) })
	defer working.Wait()
	resync := time.NewTicker(m.resync)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-resync.C:
			for _, uid := range m.allPods() {
				working.Go(func() { m.refresh(ctx, uid) })
				working.Go(func() { m.keep(ctx, uid) })
			}
		case <-m.wake:
			for _, uid := range m.takePending() {
				working.Go(func() { m.refresh(ctx, uid) })
			}
		}
	}
}

func (m *Manager) markPending(uid types.UID) {
	m.mu.Lock()
	m.pending[uid] = true
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Manager) takePending() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uids []types.UID
	for uid := range m.pending {
		uids = append(uids, uid)
	}
	clear(m.pending)
	return uids
}

func (m *Manager) allPods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uids []types.UID
	for uid := range m.pods {
		uids = append(uids, uid)
	}
	return uids
}

// entry returns the record of a pod, and makes it if necessary.
func (m *Manager) entry(pod *corev1.Pod, podDir string) (*mounted, error) {
	m.mu.Lock()
	known := m.pods[pod.UID]
	if known == nil {
		known = &mounted{shown: map[string]payload{}, published: map[string]bool{}, republish: map[string]bool{}, growing: map[string]bool{}}
		m.pods[pod.UID] = known
	}
	m.mu.Unlock()
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.gone {
		return nil, fmt.Errorf("pod %s/%s: its volumes are being unmounted", pod.Namespace, pod.Name)
	}
	known.pod, known.dir = pod, podDir
	return known, nil
}

// Mount mounts the pod's volumes and returns their locations by volume name. Repeated calls keep
// what is mounted. It leaves out volumes that no container mounts, and image volumes, which the
// runtime mounts.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod, podDir string) (map[string]MountPoint, error) {
	known, err := m.entry(pod, podDir)
	if err != nil {
		return nil, err
	}
	used := usedVolumes(pod)
	var mu sync.Mutex // guards points and problems
	points := map[string]MountPoint{}
	var problems []error
	add := func(name string, point MountPoint, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			problems = append(problems, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", name, err))
			return
		}
		points[name] = point
	}
	var mounting sync.WaitGroup
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !used[volume.Name] || volume.Image != nil || isProjection(&volume.VolumeSource) {
			continue
		}
		if volume.EmptyDir != nil {
			point, err := m.mountOne(ctx, known, pod, podDir, volume)
			add(volume.Name, point, err)
			continue
		}
		mounting.Go(func() {
			point, err := m.mountApart(ctx, known, pod, podDir, volume)
			add(volume.Name, point, err)
		})
	}
	m.projectAll(ctx, known, pod, podDir, used, add)
	mounting.Wait()
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return points, nil
}

// mountApart mounts a volume that can hang: a driver's, or one on a file system of the node.
func (m *Manager) mountApart(ctx context.Context, known *mounted, pod *corev1.Pod, podDir string, volume *corev1.Volume) (MountPoint, error) {
	result := make(chan MountPoint, 1)
	err := m.operations.do(ctx, operationOf(pod.UID)+volume.Name, mountTimeout, func(ctx context.Context) error {
		if _, _, gone := known.current(); gone {
			return errors.New("the pod's volumes are being unmounted")
		}
		point, err := m.mountOne(ctx, known, pod, podDir, volume)
		result <- point
		return err
	})
	if err != nil {
		return MountPoint{}, err
	}
	return <-result, nil
}

// operationOf is the prefix of the keys of a pod's operations.
func operationOf(uid types.UID) string { return string(uid) + "/" }

// projectAll mounts the projections that containers use.
func (m *Manager) projectAll(ctx context.Context, known *mounted, pod *corev1.Pod, podDir string, used map[string]bool, add func(string, MountPoint, error)) {
	known.projecting.Lock()
	defer known.projecting.Unlock()
	if _, _, gone := known.current(); gone {
		return
	}
	projector := &projector{Manager: m, pod: pod, fresh: true}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !used[volume.Name] || !isProjection(&volume.VolumeSource) {
			continue
		}
		dir := filepath.Join(podDir, volumesDir, pluginDir(&volume.VolumeSource), volume.Name)
		err := m.project(ctx, known, projector, volume, dir)
		add(volume.Name, MountPoint{HostPath: dir, ReadOnly: true, SELinuxRelabel: true}, err)
	}
}

// usedVolumes returns the names of the volumes that containers mount or read environment files
// from.
func usedVolumes(pod *corev1.Pod) map[string]bool {
	used := map[string]bool{}
	add := func(mounts []corev1.VolumeMount, devices []corev1.VolumeDevice, env []corev1.EnvVar) {
		for _, mount := range mounts {
			used[mount.Name] = true
		}
		for _, device := range devices {
			used[device.Name] = true
		}
		for _, variable := range env {
			if variable.ValueFrom != nil && variable.ValueFrom.FileKeyRef != nil {
				used[variable.ValueFrom.FileKeyRef.VolumeName] = true
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			add(containers[i].VolumeMounts, containers[i].VolumeDevices, containers[i].Env)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		container := &pod.Spec.EphemeralContainers[i]
		add(container.VolumeMounts, container.VolumeDevices, container.Env)
	}
	return used
}

// mountOne mounts one volume that is not a projection.
func (m *Manager) mountOne(ctx context.Context, known *mounted, pod *corev1.Pod, podDir string, volume *corev1.Volume) (MountPoint, error) {
	source := &volume.VolumeSource
	dir := filepath.Join(podDir, volumesDir, pluginDir(source), volume.Name)
	switch {
	case source.EmptyDir != nil:
		return MountPoint{HostPath: dir, SELinuxRelabel: true}, m.emptyDir(pod, source.EmptyDir, dir)
	case source.HostPath != nil:
		return MountPoint{HostPath: source.HostPath.Path}, hostPath(source.HostPath)
	case source.PersistentVolumeClaim != nil, source.Ephemeral != nil:
		return m.mountClaim(ctx, known, pod, podDir, volume)
	case source.CSI != nil:
		return m.mountCSIInline(ctx, known, pod, podDir, volume)
	case source.NFS != nil:
		return m.mountNFS(ctx, pod, podDir, volume.Name, source.NFS, nil, source.NFS.ReadOnly)
	case source.ISCSI != nil, source.FC != nil, source.GitRepo != nil:
		return MountPoint{}, errors.New("this node does not mount iSCSI, FC and gitRepo volumes itself: install their CSI driver (for gitRepo, use an init container)")
	}
	return MountPoint{}, errors.New("no volume plugin matched")
}

// project updates one projection. The caller holds known.projecting.
func (m *Manager) project(ctx context.Context, known *mounted, projector *projector, volume *corev1.Volume, dir string) error {
	content, err := projector.collect(ctx, &volume.VolumeSource)
	if err != nil {
		return err
	}
	if shown, found := known.shown[volume.Name]; found && shown.equal(content) {
		return nil
	}
	if err := m.projectionDir(projector.pod, volume, dir); err != nil {
		return err
	}
	var own func(string) error
	if group := fsGroup(projector.pod); group != nil {
		own = func(path string) error { return giveToGroup(path, *group, true) }
	}
	if err := writeAtomic(dir, content, m.Now(), own); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	known.shown[volume.Name] = content
	return nil
}

// projectionDir makes the folder of a projection: on disk for ConfigMaps, in memory for content
// that must not reach the disk.
func (m *Manager) projectionDir(pod *corev1.Pod, volume *corev1.Volume, dir string) error {
	if volume.ConfigMap != nil {
		return makeEmpty(dir, fsGroup(pod))
	}
	return m.memoryDir(pod, nil, dir)
}

// Refresh updates the pod's projections after a change of its labels and annotations.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	known := m.lookUp(pod.UID)
	if known == nil {
		return nil
	}
	known.mu.Lock()
	known.pod = pod
	known.mu.Unlock()
	known.projecting.Lock()
	defer known.projecting.Unlock()
	return m.refreshLocked(ctx, known)
}

func (m *Manager) lookUp(uid types.UID) *mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

// Freeze stops updates of the pod's projections. It is for a pod that the API no longer has and
// that has not ended yet. Its objects may disappear with the namespace, and the API issues no more
// tokens to it.
func (m *Manager) Freeze(uid types.UID) {
	if known := m.lookUp(uid); known != nil {
		known.frozen.Store(true)
	}
	m.objects.release(uid)
}

// refresh is Refresh for background updates. It logs errors; the old content stays.
func (m *Manager) refresh(ctx context.Context, uid types.UID) {
	ctx, cancel := context.WithTimeout(ctx, resyncPeriod)
	defer cancel()
	known := m.lookUp(uid)
	if known == nil || known.frozen.Load() {
		return
	}
	known.projecting.Lock()
	defer known.projecting.Unlock()
	err := m.refreshLocked(ctx, known)
	if err == nil {
		known.failingSince = time.Time{}
		return
	}
	if known.failingSince.IsZero() {
		known.failingSince = m.Now()
	}
	// A pod's objects are often deleted a moment before the pod. Failures that last until the next
	// resync are logged.
	if m.Now().Sub(known.failingSince) >= resyncPeriod/2 && ctx.Err() == nil && !known.frozen.Load() {
		pod, _, _ := known.current()
		m.Log.Warn("cannot update projected volumes; their content stays as it is", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
	}
}

// refreshLocked updates the projections that Mount has made. The caller holds known.projecting.
func (m *Manager) refreshLocked(ctx context.Context, known *mounted) error {
	pod, podDir, gone := known.current()
	if gone {
		return nil
	}
	projector := &projector{Manager: m, pod: pod}
	var problems []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if _, shown := known.shown[volume.Name]; !shown || !isProjection(&volume.VolumeSource) {
			continue // Mount has not reached this volume yet
		}
		dir := filepath.Join(podDir, volumesDir, pluginDir(&volume.VolumeSource), volume.Name)
		if err := m.project(ctx, known, projector, volume, dir); err != nil {
			problems = append(problems, fmt.Errorf("volume %q: %w", volume.Name, err))
		}
	}
	return errors.Join(problems...)
}

// keep attends to CSI volumes that change while they are mounted. It publishes volumes again whose
// driver requires it (CSIDriver.spec.requiresRepublish), because tokens in them expire. It expands
// volumes whose claim has grown.
func (m *Manager) keep(ctx context.Context, uid types.UID) {
	known := m.lookUp(uid)
	if known == nil || known.frozen.Load() || !known.keeping.CompareAndSwap(false, true) {
		return
	}
	defer known.keeping.Store(false)
	pod, podDir, _ := known.current()
	var volumes sync.WaitGroup
	defer volumes.Wait()
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		known.mu.Lock()
		republish, growing := known.republish[volume.Name], known.growing[volume.Name]
		known.mu.Unlock()
		if !republish && !growing {
			continue
		}
		volumes.Go(func() {
			if _, err := m.mountApart(ctx, known, pod, podDir, volume); err != nil && ctx.Err() == nil {
				m.Log.Warn("cannot publish or expand a CSI volume again", "namespace", pod.Namespace, "pod", pod.Name, "volume", volume.Name, "error", err)
			}
		})
	}
}

// Unmount unmounts all of the pod's volumes. All it needs is in the pod's folder, so it also works
// for pods that an earlier process mounted.
func (m *Manager) Unmount(ctx context.Context, podUID types.UID, podDir string) error {
	if known := m.lookUp(podUID); known != nil {
		known.projecting.Lock() // wait for an update in flight
		known.mu.Lock()
		known.gone = true
		known.mu.Unlock()
		known.projecting.Unlock()
	}
	m.objects.release(podUID)
	m.tokens.forget(podUID)
	err := m.operations.idle(ctx, operationOf(podUID), mountTimeout)
	if err == nil {
		err = m.unmount(ctx, podUID, podDir)
	}
	if err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", podUID, err)
	}
	m.mu.Lock()
	delete(m.pods, podUID)
	delete(m.pending, podUID)
	m.mu.Unlock()
	return nil
}

func (m *Manager) unmount(ctx context.Context, podUID types.UID, podDir string) error {
	subPaths, volumes, devices := filepath.Join(podDir, subPathsDir), filepath.Join(podDir, volumesDir), filepath.Join(podDir, devicesDir)
	failpoint.Here("volumes-unmount")
	if err := unmountBelow(subPaths); err != nil {
		return err
	}
	if err := m.unmountCSI(ctx, podUID, podDir); err != nil {
		return err
	}
	if err := m.operations.do(ctx, operationOf(podUID), mountTimeout, func(ctx context.Context) error { return unmountNFS(ctx, podDir) }); err != nil {
		return err
	}
	if err := unmapLocalDevices(podDir); err != nil {
		return err
	}
	if err := unmountBelow(volumes); err != nil {
		return err
	}
	failpoint.Here("volumes-unmounted")
	// Nothing is mounted below any more, so this removes only the pod's own files.
	for _, dir := range []string{subPaths, volumes, devices} {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
