package scheduler

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// still is an informer that has all its objects from the start. Handlers see them at once, in the
// caller's goroutine: upstream's scheduler is complete as soon as it is made.
type still struct{ cache.SharedIndexInformer }

// AddEventHandler implements cache.SharedInformer.
func (s still) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, o := range s.GetIndexer().List() {
		handler.OnAdd(o, true)
	}
	return s, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (s still) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (s still) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (still) HasSynced() bool { return true }

// show registers an informer with these objects.
func show[T any, P interface {
	*T
	runtime.Object
}](factory informers.SharedInformerFactory, objects []P) {
	indexer := factory.InformerFor(P(new(T)), func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return still{cache.NewSharedIndexInformer(&cache.ListWatch{}, P(new(T)), 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	}).GetIndexer()
	for _, o := range objects {
		if err := indexer.Add(o); err != nil {
			panic(err) // only an object without metadata has no key
		}
	}
}

// showAll registers the objects of a case.
func showAll(factory informers.SharedInformerFactory, c *Case) {
	show[corev1.Pod](factory, append([]*corev1.Pod{c.Pod}, c.Pods...))
	show[corev1.Node](factory, c.Nodes)
	show[corev1.Namespace](factory, c.Namespaces)
	show[corev1.Service](factory, c.Services)
	show[appsv1.ReplicaSet](factory, c.ReplicaSets)
	show[policyv1.PodDisruptionBudget](factory, c.Budgets)
	show[corev1.PersistentVolumeClaim](factory, c.Claims)
	show[corev1.PersistentVolume](factory, c.Volumes)
	show[storagev1.StorageClass](factory, c.Classes)
	show[storagev1.CSINode](factory, c.CSINodes)
	show[storagev1.CSIDriver](factory, c.CSIDrivers)
	show[storagev1.CSIStorageCapacity](factory, c.Capacities)
	show[storagev1.VolumeAttachment](factory, c.Attachments)
	show[resourcev1.ResourceClaim](factory, c.DeviceClaims)
	show[resourcev1.DeviceClass](factory, c.DeviceClasses)
	show[resourcev1.ResourceSlice](factory, c.Slices)
}
