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
)

const (
	// volumesDir is relative to the pod's folder: volumes/PLUGIN/NAME, the same as upstream's.
	volumesDir = "volumes"
	// resyncPeriod is the interval for comparing projections with their objects and for renewing
	// tokens.
	resyncPeriod = time.Minute
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

// Manager mounts volumes. It is safe for concurrent use; calls for one pod are serialized.
type Manager struct {
	Options
	objects *objects
	tokens  *tokens

	mu      sync.Mutex // guards what follows
	pods    map[types.UID]*mounted
	pending map[types.UID]bool // pods whose projections may have changed
	wake    chan struct{}
}

// mounted is the Manager's record of one pod.
type mounted struct {
	frozen atomic.Bool // the API no longer has the pod, so its projections stay unchanged

	mu    sync.Mutex // held while the pod's volumes change; guards the fields below
	pod   *corev1.Pod
	dir   string
	shown map[string]payload // current content of projections by volume name
	// CSI volumes, by name, that their driver wants to be published repeatedly
	republish map[string]bool
	gone      bool

	failingSince time.Time // since when refreshing fails, or zero
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
		Options: options,
		tokens:  &tokens{client: options.Client, now: options.Now, issued: map[tokenKey]token{}},
		pods:    map[types.UID]*mounted{}, pending: map[types.UID]bool{}, wake: make(chan struct{}, 1),
	}
	m.objects = newObjects(options.Client, options.Log, m.markPending)
	return m
}

// Run keeps projections current until ctx ends. It updates them when an object changes, and every
// minute.
func (m *Manager) Run(ctx context.Context) {
	var following sync.WaitGroup
	following.Go(func() { m.objects.run(ctx) })
	defer following.Wait()
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-resync.C:
			for _, uid := range m.allPods() {
				m.refresh(ctx, uid)
				m.republish(ctx, uid)
			}
		case <-m.wake:
			for _, uid := range m.takePending() {
				m.refresh(ctx, uid)
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
func (m *Manager) entry(pod *corev1.Pod, podDir string) *mounted {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[pod.UID]
	if known == nil {
		known = &mounted{pod: pod, dir: podDir, shown: map[string]payload{}, republish: map[string]bool{}}
		m.pods[pod.UID] = known
	}
	return known
}

// Mount mounts the pod's volumes and returns their locations by volume name. Repeated calls keep
// what is mounted. It leaves out volumes that no container mounts, and image volumes, which the
// runtime mounts.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod, podDir string) (map[string]MountPoint, error) {
	known := m.entry(pod, podDir)
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.gone {
		return nil, fmt.Errorf("pod %s/%s: its volumes are being unmounted", pod.Namespace, pod.Name)
	}
	known.pod, known.dir = pod, podDir
	used := usedVolumes(pod)
	projector := &projector{Manager: m, pod: pod, fresh: true}
	points := map[string]MountPoint{}
	var problems []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !used[volume.Name] || volume.Image != nil {
			continue
		}
		point, err := m.mountOne(ctx, known, projector, volume)
		if err != nil {
			problems = append(problems, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", volume.Name, err))
			continue
		}
		points[volume.Name] = point
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return points, nil
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

// mountOne mounts one volume.
func (m *Manager) mountOne(ctx context.Context, known *mounted, projector *projector, volume *corev1.Volume) (MountPoint, error) {
	source := &volume.VolumeSource
	dir := filepath.Join(known.dir, volumesDir, pluginDir(source), volume.Name)
	switch {
	case isProjection(source):
		err := m.project(ctx, known, projector, volume)
		return MountPoint{HostPath: dir, ReadOnly: true, SELinuxRelabel: true}, err
	case source.EmptyDir != nil:
		return MountPoint{HostPath: dir, SELinuxRelabel: true}, m.emptyDir(known.pod, source.EmptyDir, dir)
	case source.HostPath != nil:
		return MountPoint{HostPath: source.HostPath.Path}, hostPath(source.HostPath)
	case source.PersistentVolumeClaim != nil, source.Ephemeral != nil:
		return m.mountClaim(ctx, known, volume)
	case source.CSI != nil:
		return m.mountCSIInline(ctx, known, volume)
	case source.NFS != nil, source.ISCSI != nil, source.FC != nil, source.GitRepo != nil:
		return MountPoint{}, errors.New("this node does not mount NFS, iSCSI, FC and gitRepo volumes itself: install their CSI driver (for gitRepo, use an init container)")
	}
	return MountPoint{}, errors.New("no volume plugin matched")
}

// project updates one projection. The caller has locked known.
func (m *Manager) project(ctx context.Context, known *mounted, projector *projector, volume *corev1.Volume) error {
	content, err := projector.collect(ctx, &volume.VolumeSource)
	if err != nil {
		return err
	}
	if shown, found := known.shown[volume.Name]; found && shown.equal(content) {
		return nil
	}
	dir := filepath.Join(known.dir, volumesDir, pluginDir(&volume.VolumeSource), volume.Name)
	if err := m.projectionDir(known.pod, volume, dir); err != nil {
		return err
	}
	var own func(string) error
	if group := fsGroup(known.pod); group != nil {
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
	m.mu.Lock()
	known := m.pods[pod.UID]
	m.mu.Unlock()
	if known == nil {
		return nil
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.gone {
		return nil
	}
	known.pod = pod
	return m.refreshLocked(ctx, known)
}

// Freeze stops updates of the pod's projections. It is for a pod that the API no longer has and
// that has not ended yet. Its objects may disappear with the namespace, and the API issues no more
// tokens to it.
func (m *Manager) Freeze(uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	m.mu.Unlock()
	if known != nil {
		known.frozen.Store(true)
	}
	m.objects.release(uid)
}

// refresh is Refresh for background updates. It logs errors; the old content stays.
func (m *Manager) refresh(ctx context.Context, uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	m.mu.Unlock()
	if known == nil || known.frozen.Load() {
		return
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.gone {
		return
	}
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
		m.Log.Warn("cannot update projected volumes; their content stays as it is", "namespace", known.pod.Namespace, "pod", known.pod.Name, "error", err)
	}
}

func (m *Manager) refreshLocked(ctx context.Context, known *mounted) error {
	projector := &projector{Manager: m, pod: known.pod}
	var problems []error
	for i := range known.pod.Spec.Volumes {
		volume := &known.pod.Spec.Volumes[i]
		if _, shown := known.shown[volume.Name]; !shown || !isProjection(&volume.VolumeSource) {
			continue // Mount has not reached this volume yet
		}
		if err := m.project(ctx, known, projector, volume); err != nil {
			problems = append(problems, fmt.Errorf("volume %q: %w", volume.Name, err))
		}
	}
	return errors.Join(problems...)
}

// republish publishes CSI volumes again whose driver requires it
// (CSIDriver.spec.requiresRepublish), because tokens in them expire.
func (m *Manager) republish(ctx context.Context, uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	m.mu.Unlock()
	if known == nil || known.frozen.Load() {
		return
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	for i := range known.pod.Spec.Volumes {
		volume := &known.pod.Spec.Volumes[i]
		if known.gone || !known.republish[volume.Name] {
			continue
		}
		if _, err := m.mountOne(ctx, known, &projector{Manager: m, pod: known.pod}, volume); err != nil && ctx.Err() == nil {
			m.Log.Warn("cannot publish a CSI volume again", "namespace", known.pod.Namespace, "pod", known.pod.Name, "volume", volume.Name, "error", err)
		}
	}
}

// Unmount unmounts all of the pod's volumes. All it needs is in the pod's folder, so it also works
// for pods that an earlier process mounted.
func (m *Manager) Unmount(ctx context.Context, podUID types.UID, podDir string) error {
	m.mu.Lock()
	known := m.pods[podUID]
	m.mu.Unlock()
	if known != nil {
		known.mu.Lock()
		defer known.mu.Unlock()
		known.gone = true
	}
	m.objects.release(podUID)
	m.tokens.forget(podUID)
	if err := m.unmount(ctx, podUID, podDir); err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", podUID, err)
	}
	m.mu.Lock()
	delete(m.pods, podUID)
	delete(m.pending, podUID)
	m.mu.Unlock()
	return nil
}

func (m *Manager) unmount(ctx context.Context, podUID types.UID, podDir string) error {
	subPaths, volumes := filepath.Join(podDir, subPathsDir), filepath.Join(podDir, volumesDir)
	if err := unmountBelow(subPaths); err != nil {
		return err
	}
	if err := m.unmountCSI(ctx, podUID, podDir); err != nil {
		return err
	}
	if err := unmapLocalDevices(podDir); err != nil {
		return err
	}
	devices := filepath.Join(podDir, devicesDir)
	for _, dir := range []string{volumes, devices} {
		if err := unmountBelow(dir); err != nil {
			return err
		}
	}
	// Nothing is mounted below any more, so this removes only the pod's own files.
	for _, dir := range []string{subPaths, volumes, devices} {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
