package wasm

import (
	"encoding/binary"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// local and localNormalizing are plugins whose answers the scheduler keeps for a class of pods.
type (
	local            struct{ plugin }
	localNormalizing struct{ normalizing }
)

// AppendKey implements framework.LocalPlugin.
func (p local) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return p.appendKey(key, pod.Pod)
}

// AppendKey implements framework.LocalPlugin.
func (p localNormalizing) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return p.appendKey(key, pod.Pod)
}

// appendKey appends all that the guest can see of the pod. A failure or the end of a suspension
// changes the key, so that failures are not kept.
func (g *Guest) appendKey(key []byte, pod *corev1.Pod) []byte {
	key = binary.AppendUvarint(key, g.breaker.epoch.Load())
	if g.breaker.suspended() != nil {
		return append(key, 1)
	}
	key = append(key, 0)
	proto, err := template(pod).Marshal()
	if err != nil { // it does not fail for objects from the API
		proto = []byte(pod.UID)
	}
	return appendVector(key, proto)
}

// template returns the fields that pods of one template share.
func template(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
}

var errNotLocal = errors.New("it asked for other nodes than the current one, which spec.keepAnswers excludes")

// mayLook ends a call in which a local guest looks beyond its node.
func (in *instance) mayLook() {
	if in.guest.settings.Local {
		panic(errNotLocal)
	}
}

// maxAnswers is the number of classes whose answers in PreFilter are kept.
const maxAnswers = 1024

// answers keeps what a local guest answered in PreFilter. Safe for concurrent use.
type answers struct {
	mu sync.Mutex
	by map[string]answer
}

type answer struct {
	only   sets.Set[string]
	status *framework.Status
}

func (a *answers) of(key []byte, ask func() (sets.Set[string], *framework.Status)) (sets.Set[string], *framework.Status) {
	a.mu.Lock()
	have, ok := a.by[string(key)]
	a.mu.Unlock()
	if ok {
		return have.only, have.status
	}
	only, status := ask()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil || len(a.by) >= maxAnswers {
		a.by = map[string]answer{}
	}
	a.by[string(key)] = answer{only, status}
	return only, status
}
