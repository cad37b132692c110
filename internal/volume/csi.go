package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CSI is the drivers of this node.
type CSI struct{}

var errNoCSI = errors.New("CSI volumes are not supported by this node yet")

func (m *Manager) mountCSIPersistent(context.Context, *corev1.Pod, *corev1.Volume, *corev1.PersistentVolume, string, bool, bool) (MountPoint, error) {
	return MountPoint{}, errNoCSI
}

func (m *Manager) mountCSIInline(context.Context, *corev1.Pod, *corev1.Volume, string) (MountPoint, error) {
	return MountPoint{}, errNoCSI
}

func (m *Manager) unmountCSI(context.Context, types.UID, string) error { return nil }
