package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Names of the indexes of the Views.
const (
	byClass = "scheduler-storage-class"
	byNode  = "scheduler-node"
)

// storage shows the cluster's volumes as if the decisions that are not written yet were. Its Views
// are opened for the first pod with a claim: a cluster without volumes does not pay for them. Safe
// for concurrent use.
type storage struct {
	opened   lazyViews
	wakePods wakeFunc
	claims   client.ViewOf[*corev1.PersistentVolumeClaim]
	volumes  client.ViewOf[*corev1.PersistentVolume]
	classes  client.ViewOf[*storagev1.StorageClass]
	csiNodes client.ViewOf[*storagev1.CSINode]
	drivers  client.ViewOf[*storagev1.CSIDriver]
	capacity client.ViewOf[*storagev1.CSIStorageCapacity]
	attached client.ViewOf[*storagev1.VolumeAttachment]

	mu             sync.RWMutex
	assumedVolumes map[string]*corev1.PersistentVolume
	assumedClaims  map[string]*corev1.PersistentVolumeClaim
	changes        notices // of claims and volumes
}

// wakeFunc wakes the waiting pods that an event concerns; a nil function means all of them.
type wakeFunc func(e framework.Events, concerns func(*framework.PodInfo) bool)

// wakeMatching passes an event to the scheduler's goroutine.
func (s *Scheduler) wakeMatching(e framework.Events, concerns func(*framework.PodInfo) bool) {
	s.post(func(now time.Time) { s.queue.wakeFor(&framework.Change{Events: e}, concerns, now) })
}

// wakeUsers passes the change of a claim to the scheduler's goroutine.
func (s *Scheduler) wakeUsers(claim *resourcev1.ResourceClaim) {
	s.post(func(now time.Time) { s.queue.wakeUsers(claim, now) })
}

func newStorage(ctx context.Context, c client.Interface, wakePods wakeFunc) *storage {
	s := &storage{
		wakePods: wakePods, assumedVolumes: map[string]*corev1.PersistentVolume{}, assumedClaims: map[string]*corev1.PersistentVolumeClaim{},
	}
	s.opened.open = func() error { return s.open(ctx, c) }
	return s
}

// use opens the Views at the first call.
func (s *storage) use() (framework.Storage, error) {
	if err := s.opened.openOnce(); err != nil {
		return nil, fmt.Errorf("open the views of volumes: %w", err)
	}
	return s, nil
}

func (s *storage) open(ctx context.Context, c client.Interface) error {
	if err := cmp.Or(
		openAs(ctx, c, &s.claims), openAs(ctx, c, &s.volumes), openAs(ctx, c, &s.classes), openAs(ctx, c, &s.csiNodes),
		openAs(ctx, c, &s.drivers), openAs(ctx, c, &s.capacity), openAs(ctx, c, &s.attached),
	); err != nil {
		return err
	}
	s.volumes.AddIndex(byClass, func(v *corev1.PersistentVolume) []string { return []string{volumehelper.GetPersistentVolumeClass(v)} })
	s.capacity.AddIndex(byClass, func(c *storagev1.CSIStorageCapacity) []string { return []string{c.StorageClassName} })
	s.attached.AddIndex(byNode, func(a *storagev1.VolumeAttachment) []string { return []string{a.Spec.NodeName} })
	s.subscribe(ctx)
	return nil
}

// subscribe reports changes that may help pods with claims. It skips existing objects: the pod for
// which the Views are opened sees them.
func (s *storage) subscribe(ctx context.Context) {
	hasClaims := func(p *framework.PodInfo) bool { return len(p.Claims) > 0 }
	s.opened.follow(ctx,
		follow(ctx, s.claims, func(e client.TypedEvent[*corev1.PersistentVolumeClaim]) {
			s.changes.notify(claimKey(e.Object.Namespace, e.Object.Name))
			if e.Type != client.Deleted {
				s.wakePods(framework.ClaimChanged, func(p *framework.PodInfo) bool { return p.UsesClaim(e.Object.Namespace, e.Object.Name) })
			}
		}),
		follow(ctx, s.volumes, func(e client.TypedEvent[*corev1.PersistentVolume]) {
			s.changes.notify(volumeKey(e.Object.Name))
			if e.Type == client.Deleted {
				return
			}
			if ref := e.Object.Spec.ClaimRef; ref != nil {
				s.wakePods(framework.VolumeChanged, func(p *framework.PodInfo) bool { return p.UsesClaim(ref.Namespace, ref.Name) })
				return
			}
			s.wakePods(framework.VolumeChanged, hasClaims)
		}),
		follow(ctx, s.classes, func(e client.TypedEvent[*storagev1.StorageClass]) {
			if e.Type != client.Deleted {
				s.wakePods(framework.StorageClassChanged, hasClaims)
			}
		}),
		follow(ctx, s.csiNodes, func(e client.TypedEvent[*storagev1.CSINode]) {
			if e.Type != client.Deleted && (e.Old == nil || !equality.Semantic.DeepEqual(e.Old.Spec, e.Object.Spec)) {
				s.wakePods(framework.CSINodeChanged, hasClaims)
			}
		}),
		follow(ctx, s.drivers, func(e client.TypedEvent[*storagev1.CSIDriver]) { s.wakePods(framework.CSIDriverChanged, hasClaims) }),
		follow(ctx, s.capacity, func(e client.TypedEvent[*storagev1.CSIStorageCapacity]) {
			if e.Type != client.Deleted {
				s.wakePods(framework.CapacityChanged, hasClaims)
			}
		}),
		follow(ctx, s.attached, func(e client.TypedEvent[*storagev1.VolumeAttachment]) {
			if e.Type == client.Deleted {
				s.wakePods(framework.AttachmentRemoved, hasClaims)
			}
		}),
	)
}

// assume shows these objects instead of the API server's versions, until forget.
func (s *storage) assume(volumes []*corev1.PersistentVolume, claims []*corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range volumes {
		s.assumedVolumes[v.Name] = v
	}
	for _, c := range claims {
		s.assumedClaims[c.Namespace+"/"+c.Name] = c
	}
}

// forget ends the assumption of these objects, which are written or never will be. It keeps objects
// that another pod has assumed since then.
func (s *storage) forget(volumes []*corev1.PersistentVolume, claims []*corev1.PersistentVolumeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range volumes {
		if s.assumedVolumes[v.Name] == v {
			delete(s.assumedVolumes, v.Name)
		}
	}
	for _, c := range claims {
		if key := c.Namespace + "/" + c.Name; s.assumedClaims[key] == c {
			delete(s.assumedClaims, key)
		}
	}
}

func (s *storage) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c, ok := s.assumedClaims[namespace+"/"+name]; ok {
		return c, true
	}
	return s.claims.Get(namespace, name)
}

func (s *storage) Volume(name string) (*corev1.PersistentVolume, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if v, ok := s.assumedVolumes[name]; ok {
		return v, true
	}
	return s.volumes.Get("", name)
}

func (s *storage) VolumesOf(class string) []*corev1.PersistentVolume {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := s.volumes.ByIndex(byClass, class)
	for i, v := range list {
		if assumed, ok := s.assumedVolumes[v.Name]; ok {
			list[i] = assumed
		}
	}
	return list
}

func (s *storage) Class(name string) (*storagev1.StorageClass, bool)  { return s.classes.Get("", name) }
func (s *storage) CSINode(name string) (*storagev1.CSINode, bool)     { return s.csiNodes.Get("", name) }
func (s *storage) CSIDriver(name string) (*storagev1.CSIDriver, bool) { return s.drivers.Get("", name) }
func (s *storage) Capacities(class string) []*storagev1.CSIStorageCapacity {
	return s.capacity.ByIndex(byClass, class)
}
func (s *storage) Attachments(node string) []*storagev1.VolumeAttachment {
	return s.attached.ByIndex(byNode, node)
}
