package kubelet

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// volumesInUse lists the volumes of the node's status that the cluster must not detach.
func (k *Kubelet) volumesInUse() []corev1.UniqueVolumeName {
	if k.VolumesInUse == nil {
		return nil
	}
	var names []corev1.UniqueVolumeName
	for _, name := range k.VolumesInUse() {
		names = append(names, corev1.UniqueVolumeName(name))
	}
	return names
}

// AnnounceVolume returns when the node's status lists the volume as in use. Config.VolumesInUse
// must list it already.
func (k *Kubelet) AnnounceVolume(ctx context.Context, name string) error {
	const look, again = 10 * time.Millisecond, time.Second
	var kicked time.Time
	for {
		node, ok := k.nodes.Get("", k.NodeName)
		if ok && slices.Contains(node.Status.VolumesInUse, corev1.UniqueVolumeName(name)) {
			return nil
		}
		if time.Since(kicked) > again {
			kicked = time.Now()
			k.node.Kick()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node's status does not list volume %s yet: %w", name, ctx.Err())
		case <-time.After(look):
		}
	}
}

// VolumeReleased updates the node's status after a volume has been unmounted.
func (k *Kubelet) VolumeReleased() { k.node.Kick() }
