package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// claim takes the next step for a claim of this provisioner.
func (l *localVolumes) claim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName != "" {
		v, ok := l.volumes.Get("", c.Spec.VolumeName)
		if !ok || !local.Ours(v) || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID {
			return nil
		}
		return l.growth(ctx, c, v)
	}
	class, ok := l.classes.Get("", volumehelper.GetPersistentVolumeClaimClass(c))
	if !ok || class.Provisioner != local.Provisioner || c.Annotations[provisioner] != local.Provisioner {
		return nil // the binder has not asked yet
	}
	if _, made := l.volumes.Get("", volumeName(c)); made {
		return nil
	}
	if why := unsupported(c); why != "" {
		l.event(c, corev1.EventTypeWarning, "ProvisioningFailed", "%s", why)
		return nil
	}
	delayed := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	node := c.Annotations[selectedNode]
	if node == "" && delayed {
		return nil
	}
	if node == "" {
		if node = l.roomiest(c, class); node == "" {
			l.event(c, corev1.EventTypeWarning, "ProvisioningFailed", "no node has space for %s in its folder %q; %s", c.Spec.Resources.Requests.Storage(), folderOf(class), "knarr nodes report it in the annotation "+local.ReportAnnotation)
			return nil
		}
	}
	v, why := l.plan(c, class, node)
	if why != "" {
		return l.giveUp(ctx, c, fmt.Sprintf("node %s cannot provide the volume: %s", node, why))
	}
	if _, err := client.Create(ctx, l.env.Client, v); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func volumeName(c *corev1.PersistentVolumeClaim) string { return "pvc-" + string(c.UID) }

// unsupported says what of a claim a local volume cannot be.
func unsupported(c *corev1.PersistentVolumeClaim) string {
	for _, m := range c.Spec.AccessModes {
		if m != corev1.ReadWriteOnce && m != corev1.ReadWriteOncePod {
			return fmt.Sprintf("access mode %s: local volumes are on one node and allow %s and %s", m, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		}
	}
	switch {
	case c.Spec.Selector != nil:
		return "spec.selector: local volumes are made for one claim and have no labels to select"
	case c.Spec.DataSource != nil || c.Spec.DataSourceRef != nil:
		return "spec.dataSource: local volumes are always new; they cannot be clones or snapshots"
	}
	return ""
}

// roomiest returns the ready node with the most space for a claim that is bound before its pod
// exists, or "".
func (l *localVolumes) roomiest(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	best, most := "", int64(-1)
	for _, n := range l.nodes.List("", nil) {
		if !nodeReady(n) || n.Spec.Unschedulable || !allowed(class, n) {
			continue
		}
		report, err := local.ParseReport(n)
		if err != nil {
			continue
		}
		if _, why := l.plan(c, class, n.Name); why != "" {
			continue
		}
		if free := l.free(n.Name, folderOf(class), report.Folders[folderOf(class)]); free > most {
			best, most = n.Name, free
		}
	}
	return best
}

// allowed reports whether the class's allowedTopologies permit a node.
func allowed(class *storagev1.StorageClass, n *corev1.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		for _, e := range t.MatchLabelExpressions {
			if !slices.Contains(e.Values, n.Labels[e.Key]) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}

// plan returns the volume for a claim on a node, or why there is none.
func (l *localVolumes) plan(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, name string) (v *corev1.PersistentVolume, why string) {
	node, ok := l.nodes.Get("", name)
	if !ok {
		return nil, "it does not exist"
	}
	if !nodeReady(node) {
		return nil, "it is not ready"
	}
	report, err := local.ParseReport(node)
	if err != nil {
		return nil, err.Error()
	}
	folder, ok := report.Folders[folderOf(class)]
	if !ok {
		return nil, fmt.Sprintf("it has no folder %q (--local-storage-path)", folderOf(class))
	}
	block := mode(c.Spec.VolumeMode) == corev1.PersistentVolumeBlock
	kind, why := folder.KindFor(class.Parameters[local.ParameterEnforce], block)
	if why != "" {
		return nil, why
	}
	size := c.Spec.Resources.Requests.Storage()
	if free := l.free(name, folderOf(class), folder); size.Value() > free {
		return nil, fmt.Sprintf("it has %s left in %s, and the claim requests %s", resource.NewQuantity(free, resource.BinarySI), folder.Path, size)
	}
	if len(class.MountOptions) > 0 {
		return nil, fmt.Sprintf("mountOptions of class %s: local volumes have none", class.Name)
	}
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	path := folder.Path + "/" + volumeName(c)
	v = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volumeName(c), Finalizers: []string{local.Finalizer}, Labels: map[string]string{local.NodeLabel: local.LabelOf(name)},
			Annotations: map[string]string{
				provisionedBy: local.Provisioner, local.NodeAnnotation: name, local.FolderAnnotation: folderOf(class),
				local.KindAnnotation: string(kind), local.PendingAnnotation: local.PendingMake,
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *size}, AccessModes: c.Spec.AccessModes, VolumeMode: c.Spec.VolumeMode,
			StorageClassName: class.Name, PersistentVolumeReclaimPolicy: policy,
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Labels[corev1.LabelHostname]}}},
			}}}},
		},
	}
	return v, ""
}

// giveUp explains why a claim got no volume, and makes the scheduler choose a node again.
func (l *localVolumes) giveUp(ctx context.Context, c *corev1.PersistentVolumeClaim, why string) error {
	l.event(c, corev1.EventTypeWarning, "ProvisioningFailed", "%s", why)
	if c.Annotations[selectedNode] == "" {
		return nil
	}
	changed := c.DeepCopy()
	delete(changed.Annotations, selectedNode)
	_, err := client.Update(ctx, l.env.Client, changed)
	return err
}
