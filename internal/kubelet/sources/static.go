package sources

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/bounds"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
	"github.com/knarr-project/knarr/internal/resource"
)

// parse reads the pods of a manifest: YAML or JSON documents, each a Pod or a PodList.
func parse(raw []byte, source, origin, nodeName string) ([]*corev1.Pod, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	var out []*corev1.Pod
	for {
		var doc runtime.RawExtension
		if err := decoder.Decode(&doc); err != nil {
			if err == io.EOF {
				return out, nil
			}
			return nil, fmt.Errorf("%s: %w", origin, err)
		}
		if len(bytes.TrimSpace(doc.Raw)) == 0 || string(doc.Raw) == "null" {
			continue
		}
		for _, like := range []any{&corev1.Pod{}, &corev1.PodList{}} {
			if err := bounds.Document(doc.Raw, like); err != nil {
				return nil, fmt.Errorf("%s: %w", origin, err)
			}
		}
		obj, err := runtime.Decode(api.Codecs.UniversalDeserializer(), doc.Raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", origin, err)
		}
		first := len(out)
		switch o := obj.(type) {
		case *corev1.Pod:
			out = append(out, o)
		case *corev1.PodList:
			for i := range o.Items {
				out = append(out, &o.Items[i])
			}
		default:
			return nil, fmt.Errorf("%s: expected a Pod or a PodList, found %T", origin, obj)
		}
		for _, pod := range out[first:] {
			if err := complete(pod, source, origin, nodeName); err != nil {
				return nil, fmt.Errorf("%s: pod %s: %w", origin, pod.Name, err)
			}
		}
	}
}

// complete adds to a manifest's pod everything that a pod of this node needs.
func complete(pod *corev1.Pod, source, origin, nodeName string) error {
	strategy := resource.For(schema.GroupResource{Resource: "pods"})
	if strategy != nil && strategy.Default != nil {
		strategy.Default(pod)
	}
	if pod.Name == "" {
		return fmt.Errorf("metadata.name is empty")
	}
	if pod.UID == "" {
		h := md5.New()
		raw, err := runtime.Encode(api.Codecs.LegacyCodec(corev1.SchemeGroupVersion), pod)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "host:%s\n%s:%s\n", nodeName, source, origin)
		h.Write(raw)
		pod.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
	pod.Name += "-" + strings.ToLower(nodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = nodeName
	pod.Generation = 1
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[spec.AnnotationConfigSource] = source
	pod.Annotations[spec.AnnotationConfigHash] = string(pod.UID)
	pod.Annotations[spec.AnnotationConfigSeen] = time.Now().Format(time.RFC3339Nano)
	// A static pod stays on the node whatever taints the node has.
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	for _, c := range pod.Spec.InitContainers {
		if c.Image == "" {
			return fmt.Errorf("container %s has no image", c.Name)
		}
	}
	for _, c := range pod.Spec.Containers {
		if c.Image == "" {
			return fmt.Errorf("container %s has no image", c.Name)
		}
	}
	if len(pod.Spec.Containers) == 0 {
		return fmt.Errorf("spec.containers is empty")
	}
	return nil
}
