package pods

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/memo"
)

// Most pods of a cluster are replicas: their labels, owners, resources and tokens' volumes are
// equal. A cached pod takes such parts from pods decoded before. A small replica then has half of
// the bytes of its own, and a quarter of the objects that the garbage collector visits.

// Limits of the parts that the process remembers.
const (
	shareEntries = 1024 // in each of two generations
	shareLongest = 1024 // bytes of a part's key
)

var (
	shareSeed   = maphash.MakeSeed()
	sharedParts = memo.Memo[uint64, sharedPart]{Size: shareEntries}
	sharedTexts = memo.Memo[string, string]{Size: shareEntries}
)

// sharedPart is a part of a pod. The key has its kind and all of its content.
type sharedPart struct {
	key   []byte
	value any
}

// part returns an equal value of an earlier pod, else v. The sharer's key describes v.
func part[T any](s *sharer, v T) T {
	if s.tooLong {
		return v
	}
	hash := maphash.Bytes(shareSeed, s.key)
	if known, ok := sharedParts.Get(hash); ok && bytes.Equal(known.key, s.key) {
		return known.value.(T)
	}
	sharedParts.Put(hash, sharedPart{bytes.Clone(s.key), v})
	return v
}

// text replaces a string by an equal one of an earlier pod.
func text[T ~string](s *T) {
	if *s == "" || len(*s) > shareLongest {
		return
	}
	known, ok := sharedTexts.Get(string(*s))
	if !ok {
		known = string(*s)
		sharedTexts.Put(known, known)
	}
	*s = T(known)
}

// partKind begins a part's key.
type partKind byte

const (
	partTexts partKind = iota
	partOwners
	partTolerations
	partResources
	partProjected
	partAffinity
)

// sharer replaces parts of one pod.
type sharer struct {
	key     []byte // of the current part
	tooLong bool   // the key is incomplete
}

var sharers = sync.Pool{New: func() any { return new(sharer) }}

func (s *sharer) begin(kind partKind) { s.key, s.tooLong = append(s.key[:0], byte(kind)), false }

func (s *sharer) string(text string) {
	if s.tooLong = s.tooLong || len(s.key)+len(text) > shareLongest; !s.tooLong {
		s.key = append(binary.AppendUvarint(s.key, uint64(len(text))), text...)
	}
}

func (s *sharer) bool(b *bool) {
	switch {
	case b == nil:
		s.string("")
	case *b:
		s.string("y")
	default:
		s.string("n")
	}
}

// sharePod replaces parts of a pod that is read-only from now on by equal parts of earlier pods.
func sharePod(pod *corev1.Pod) {
	s := sharers.Get().(*sharer)
	defer sharers.Put(s)
	text(&pod.Namespace)
	text(&pod.GenerateName)
	pod.Labels = s.texts(pod.Labels)
	pod.Annotations = s.texts(pod.Annotations)
	pod.OwnerReferences = s.owners(pod.OwnerReferences)

	spec := &pod.Spec
	text(&spec.ServiceAccountName)
	text(&spec.DeprecatedServiceAccount)
	text(&spec.SchedulerName)
	text(&spec.NodeName)
	text(&spec.RestartPolicy)
	text(&spec.DNSPolicy)
	spec.NodeSelector = s.texts(spec.NodeSelector)
	spec.Tolerations = s.tolerations(spec.Tolerations)
	if spec.Affinity != nil {
		if raw, err := spec.Affinity.Marshal(); err == nil {
			s.begin(partAffinity)
			s.string(string(raw))
			spec.Affinity = part(s, spec.Affinity)
		}
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		if raw, err := v.Projected.Marshal(); err == nil {
			s.begin(partProjected)
			s.string(string(raw))
			v.Projected = part(s, v.Projected)
		}
	}
	for i := range spec.InitContainers {
		s.container(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		s.container(&spec.Containers[i])
	}
}

func (s *sharer) container(c *corev1.Container) {
	text(&c.Name)
	text(&c.Image)
	text(&c.ImagePullPolicy)
	text(&c.TerminationMessagePath)
	text(&c.TerminationMessagePolicy)
	c.Resources.Requests = s.resources(c.Resources.Requests)
	c.Resources.Limits = s.resources(c.Resources.Limits)
	for i := range c.VolumeMounts {
		text(&c.VolumeMounts[i].MountPath)
	}
}

func (s *sharer) texts(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	s.begin(partTexts)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s.string(name)
		s.string(m[name])
	}
	return part(s, m)
}

func (s *sharer) owners(refs []metav1.OwnerReference) []metav1.OwnerReference {
	if len(refs) == 0 {
		return refs
	}
	s.begin(partOwners)
	for i := range refs {
		r := &refs[i]
		for _, text := range [...]string{r.APIVersion, r.Kind, r.Name, string(r.UID)} {
			s.string(text)
		}
		s.bool(r.Controller)
		s.bool(r.BlockOwnerDeletion)
	}
	return part(s, refs)
}

func (s *sharer) tolerations(all []corev1.Toleration) []corev1.Toleration {
	if len(all) == 0 {
		return all
	}
	s.begin(partTolerations)
	for i := range all {
		t := &all[i]
		for _, text := range [...]string{t.Key, string(t.Operator), t.Value, string(t.Effect)} {
			s.string(text)
		}
		if t.TolerationSeconds == nil {
			s.string("")
		} else {
			s.string(strconv.FormatInt(*t.TolerationSeconds, 10))
		}
	}
	return part(s, all)
}

func (s *sharer) resources(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return list
	}
	s.begin(partResources)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		s.string(string(name))
		s.string(string(q.Format))
		s.string(q.String())
	}
	return part(s, list)
}
