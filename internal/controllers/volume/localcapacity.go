package volume

import (
	"context"
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// capacity writes the CSIStorageCapacities of a node, one for each class. Schedulers read them for
// claims that wait for their first consumer.
func (l *localVolumes) capacity(ctx context.Context, name string) error {
	want := map[string]*storagev1.CSIStorageCapacity{}
	if node, ok := l.nodes.Get("", name); ok && node.DeletionTimestamp == nil {
		report, err := local.ParseReport(node)
		if err != nil {
			return err
		}
		for _, class := range l.ourClasses() {
			if c := l.capacityOf(node, class, report); c != nil {
				want[c.Name] = c
			}
		}
	}
	for _, have := range l.capacities.List(metav1.NamespaceSystem, labels.SelectorFromSet(labels.Set{local.NodeLabel: local.LabelOf(name)})) {
		w, ok := want[have.Name]
		delete(want, have.Name)
		switch {
		case have.Annotations[local.NodeAnnotation] != name:
		case !ok:
			if err := client.Delete[*storagev1.CSIStorageCapacity](ctx, l.env.Client, have.Namespace, have.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		case have.Capacity == nil || have.Capacity.Cmp(*w.Capacity) != 0:
			changed := have.DeepCopy()
			changed.Capacity = w.Capacity
			if _, err := client.Update(ctx, l.env.Client, changed); err != nil {
				return err
			}
		}
	}
	for _, c := range want {
		if _, err := client.Create(ctx, l.env.Client, c); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// capacityOf returns the capacity of a class on a node; nil if the node makes no such volumes.
func (l *localVolumes) capacityOf(node *corev1.Node, class *storagev1.StorageClass, report local.Report) *storagev1.CSIStorageCapacity {
	folder, ok := report.Folders[folderOf(class)]
	host := node.Labels[corev1.LabelHostname]
	if !ok || host == "" {
		return nil
	}
	if _, why := folder.KindFor(class.Parameters[local.ParameterEnforce], false); why != "" {
		return nil
	}
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: fmt.Sprintf("local-%x", sha256.Sum256([]byte(node.Name+"/"+class.Name)))[:30],
			Labels: map[string]string{local.NodeLabel: local.LabelOf(node.Name)}, Annotations: map[string]string{local.NodeAnnotation: node.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		StorageClassName: class.Name,
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: host}},
		Capacity:         resource.NewQuantity(l.free(node.Name, folderOf(class), folder), resource.BinarySI),
	}
}
