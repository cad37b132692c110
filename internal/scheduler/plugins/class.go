package plugins

import (
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// The functions below append what a plugin reads of a pod to the key of its class. Each part has a
// length or an end of its own, so that different fields never give the same key.

func appendString(key []byte, s string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(s))), s...)
}

func appendTolerations(key []byte, tolerations []corev1.Toleration) []byte {
	key = binary.AppendUvarint(key, uint64(len(tolerations)))
	for i := range tolerations {
		t := &tolerations[i]
		key = appendString(key, t.Key)
		key = appendString(key, string(t.Operator))
		key = appendString(key, t.Value)
		key = appendString(key, string(t.Effect)) // tolerationSeconds only count after the binding
	}
	return key
}

// appendNodeAffinity appends the node selector and the node affinity.
func appendNodeAffinity(key []byte, pod *corev1.Pod) []byte {
	key = binary.AppendUvarint(key, uint64(len(pod.Spec.NodeSelector)))
	if len(pod.Spec.NodeSelector) > 0 {
		for _, name := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
			key = appendString(appendString(key, name), pod.Spec.NodeSelector[name])
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return append(key, 0)
	}
	affinity, err := pod.Spec.Affinity.NodeAffinity.Marshal()
	if err != nil { // it does not fail for objects from the API
		return appendString(append(key, 2), string(pod.UID))
	}
	return appendString(append(key, 1), string(affinity))
}

func appendResources(key []byte, r *framework.Resources) []byte {
	for _, v := range []int64{r.MilliCPU, r.Memory, r.EphemeralStorage, r.Pods} {
		key = binary.AppendVarint(key, v)
	}
	key = binary.AppendUvarint(key, uint64(len(r.Scalar)))
	if len(r.Scalar) > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.Scalar)) {
			key = binary.AppendVarint(appendString(key, string(name)), r.Scalar[name])
		}
	}
	return key
}

// AppendKey implements framework.LocalPlugin.
func (nodeName) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return appendString(key, pod.Pod.Spec.NodeName)
}

// AppendKey implements framework.LocalPlugin.
func (nodeUnschedulable) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return appendTolerations(key, pod.Pod.Spec.Tolerations)
}

// AppendKey implements framework.LocalPlugin.
func (taintToleration) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return appendTolerations(key, pod.Pod.Spec.Tolerations)
}

// AppendKey implements framework.LocalPlugin.
func (nodeAffinity) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return appendNodeAffinity(key, pod.Pod)
}

// AppendKey implements framework.LocalPlugin.
func (nodePorts) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	key = binary.AppendUvarint(key, uint64(len(pod.Ports)))
	for _, p := range pod.Ports {
		key = appendString(appendString(key, p.IP), string(p.Protocol))
		key = binary.AppendVarint(key, int64(p.Port))
	}
	return key
}

// AppendKey implements framework.LocalPlugin. Device classes that provide extended resources are
// part of the key: they change the answers of all nodes.
func (resourcesFit) AppendKey(key []byte, pod *framework.PodInfo, snapshot *framework.Snapshot) []byte {
	byClass, _ := delegates(pod, snapshot) // PreFilter has failed if there is an error
	key = binary.AppendUvarint(key, uint64(len(byClass)))
	for _, name := range slices.Sorted(maps.Keys(byClass)) {
		key = appendString(key, string(name))
	}
	return appendResources(appendResources(key, &pod.Requests), &pod.Scored)
}

// AppendKey implements framework.LocalPlugin.
func (balanced) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return appendResources(key, &pod.Requests)
}

// AppendKey implements framework.LocalPlugin. The number of nodes with an image is part of the key:
// it changes the scores of all of them.
func (imageLocality) AppendKey(key []byte, pod *framework.PodInfo, snapshot *framework.Snapshot) []byte {
	images := imagesOf(pod.Pod)
	key = binary.AppendUvarint(key, uint64(len(images)))
	key = binary.AppendUvarint(key, uint64(len(pod.Pod.Spec.InitContainers)+len(pod.Pod.Spec.Containers)))
	for _, image := range images {
		have := snapshot.NodesWithImage(image)
		key = binary.AppendUvarint(key, uint64(have))
		if have > 0 {
			key = appendString(key, image)
		}
	}
	return binary.AppendUvarint(key, uint64(snapshot.Nodes.Len()))
}
