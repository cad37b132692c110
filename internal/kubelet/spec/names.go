package spec

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/dump"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// Annotations on containers and sandboxes. They are upstream's, so that knarr can take over a
// node's running pods.
const (
	AnnotationHash                   = "io.kubernetes.container.hash"
	AnnotationRestartCount           = "io.kubernetes.container.restartCount"
	AnnotationTerminationPath        = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationPolicy      = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPodGracePeriod         = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationPodDeletionGracePeriod = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationPreStop                = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                  = "io.kubernetes.container.ports"

	// AnnotationConfigSource is the source of a pod: "api", "file" or "http".
	AnnotationConfigSource = "kubernetes.io/config.source"
	// AnnotationConfigHash is a static pod's UID on its mirror pod.
	AnnotationConfigHash = "kubernetes.io/config.hash"
	// AnnotationConfigMirror marks a mirror pod.
	AnnotationConfigMirror = "kubernetes.io/config.mirror"
	// AnnotationConfigSeen is when the node agent first saw the pod.
	AnnotationConfigSeen = "kubernetes.io/config.seen"
)

// Hash identifies the part of a container's spec that makes the container restart when it changes:
// name and image. The hash is upstream's, so that containers of upstream's kubelet are recognized.
func Hash(c *corev1.Container) string {
	picked, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(picked))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// PodDir is the pod's folder below the node agent's root folder.
func PodDir(rootDir string, uid types.UID) string {
	return filepath.Join(rootDir, "pods", string(uid))
}

// LogDir is the folder of the pod's container logs.
func LogDir(logsDir string, pod *corev1.Pod) string {
	return filepath.Join(logsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// LogPath is the path of a container's log relative to its pod's LogDir.
func LogPath(container string, attempt int) string {
	return filepath.Join(container, strconv.Itoa(attempt)+".log")
}

// FullName formats a pod for messages: name_namespace(uid).
func FullName(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func podLabels(pod *corev1.Pod) map[string]string {
	labels := map[string]string{}
	for k, v := range pod.Labels {
		labels[k] = v
	}
	labels[kubelettypes.KubernetesPodNameLabel] = pod.Name
	labels[kubelettypes.KubernetesPodNamespaceLabel] = pod.Namespace
	labels[kubelettypes.KubernetesPodUIDLabel] = string(pod.UID)
	return labels
}

func containerLabels(pod *corev1.Pod, c *corev1.Container) map[string]string {
	return map[string]string{
		kubelettypes.KubernetesPodNameLabel:       pod.Name,
		kubelettypes.KubernetesPodNamespaceLabel:  pod.Namespace,
		kubelettypes.KubernetesPodUIDLabel:        string(pod.UID),
		kubelettypes.KubernetesContainerNameLabel: c.Name,
	}
}

func containerAnnotations(pod *corev1.Pod, c *corev1.Container, attempt int) map[string]string {
	a := map[string]string{
		AnnotationHash:              Hash(c),
		AnnotationRestartCount:      strconv.Itoa(attempt),
		AnnotationTerminationPath:   c.TerminationMessagePath,
		AnnotationTerminationPolicy: string(c.TerminationMessagePolicy),
	}
	if pod.DeletionGracePeriodSeconds != nil {
		a[AnnotationPodDeletionGracePeriod] = strconv.FormatInt(*pod.DeletionGracePeriodSeconds, 10)
	}
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		a[AnnotationPodGracePeriod] = strconv.FormatInt(*pod.Spec.TerminationGracePeriodSeconds, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if raw, err := json.Marshal(c.Lifecycle.PreStop); err == nil {
			a[AnnotationPreStop] = string(raw)
		}
	}
	if len(c.Ports) > 0 {
		if raw, err := json.Marshal(c.Ports); err == nil {
			a[AnnotationPorts] = string(raw)
		}
	}
	return a
}
