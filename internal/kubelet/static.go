package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/sources"
	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// staticPods keeps the pods of the manifest folder and URL, and their mirrors in the API. One
// goroutine reconciles; other goroutines only wake it.
type staticPods struct {
	k    *Kubelet
	kick chan struct{}

	mu sync.Mutex
	// wanted holds each source's pods. A source that has not delivered yet has no entry.
	wanted map[string][]*corev1.Pod
}

// watchStatic reads the sources of static pods until ctx ends. Without sources it removes the
// mirrors that an earlier configuration left, and returns.
func (k *Kubelet) watchStatic(ctx context.Context) {
	s := k.static
	var wg sync.WaitGroup
	start := func(name string, run func(context.Context, func([]*corev1.Pod))) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			run(ctx, func(pods []*corev1.Pod) {
				s.mu.Lock()
				s.wanted[name] = pods
				s.mu.Unlock()
				s.look()
			})
		}()
	}
	expected := 0
	if k.Settings.StaticPodPath != "" {
		expected++
		start("file", (&sources.File{Path: k.Settings.StaticPodPath, NodeName: k.NodeName, Period: k.Settings.FileCheckFrequency.Duration, Log: k.log}).Run)
	}
	if k.Settings.StaticPodURL != "" {
		expected++
		start("http", (&sources.URL{Address: k.Settings.StaticPodURL, Header: k.Settings.StaticPodURLHeader, NodeName: k.NodeName, Period: k.Settings.HTTPCheckFrequency.Duration, Log: k.log}).Run)
	}
	if expected == 0 {
		k.sourcesReady()
	}
	defer wg.Wait()
	s.look()
	for {
		retry := time.Duration(0)
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		for {
			all := s.all(expected)
			if all == nil {
				break
			}
			err := s.reconcile(ctx, all)
			k.sourcesReady() // now, since static pods that run already have their workers
			if err == nil || ctx.Err() != nil {
				break
			}
			k.log.Warn("cannot reconcile static pods; trying again", "error", err)
			retry = min(max(2*retry, time.Second), 10*time.Second)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry):
			}
		}
	}
}

func (s *staticPods) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// all returns the pods of all sources by UID, or nil while a source has not delivered yet.
func (s *staticPods) all(expected int) map[types.UID]*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wanted) < expected {
		return nil
	}
	out := map[types.UID]*corev1.Pod{}
	for _, pods := range s.wanted {
		for _, p := range pods {
			out[p.UID] = p
		}
	}
	return out
}

// reconcile starts and ends workers and mirrors of static pods.
func (s *staticPods) reconcile(ctx context.Context, wanted map[types.UID]*corev1.Pod) error {
	k := s.k
	busy := map[types.NamespacedName]types.UID{}
	for _, w := range k.Workers() {
		pod := w.View().Pod
		if pod.Annotations[spec.AnnotationConfigSource] == "" {
			continue
		}
		busy[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod.UID
		if wanted[pod.UID] == nil {
			w.Removed()
		}
	}
	var last error
	for uid, pod := range wanted {
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if have, ok := busy[name]; ok && have != uid {
			continue // the predecessor is still ending; gone() reconciles again
		} else if !ok {
			k.add(ctx, pod)
			busy[name] = uid
		}
		if err := s.ensureMirror(ctx, pod); err != nil {
			last = err
		}
	}
	for _, mirror := range k.podView.List("", nil) {
		hash, ok := mirror.Annotations[spec.AnnotationConfigMirror]
		if !ok || wanted[types.UID(hash)] != nil {
			continue
		}
		if _, ending := busy[types.NamespacedName{Namespace: mirror.Namespace, Name: mirror.Name}]; ending {
			continue
		}
		if err := s.deleteMirror(ctx, mirror); err != nil {
			last = err
		}
	}
	return last
}

// ensureMirror creates the mirror pod of a static pod in the API.
func (s *staticPods) ensureMirror(ctx context.Context, pod *corev1.Pod) error {
	k := s.k
	if have, ok := k.podView.Get(pod.Namespace, pod.Name); ok {
		if have.Annotations[spec.AnnotationConfigMirror] == string(pod.UID) && have.DeletionTimestamp == nil {
			return nil
		}
		if _, mirror := have.Annotations[spec.AnnotationConfigMirror]; !mirror {
			// Another pod has the name; as in upstream, the static pod runs without a mirror.
			return nil
		}
		if err := s.deleteMirror(ctx, have); err != nil {
			return err
		}
	}
	node, ok := k.nodes.Get("", k.NodeName)
	if !ok {
		return fmt.Errorf("mirror of static pod %s/%s: the node is not registered yet", pod.Namespace, pod.Name)
	}
	controller := true
	mirror := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.NodeName, UID: node.UID, Controller: &controller}},
	}, Spec: *pod.Spec.DeepCopy()}
	for key, v := range pod.Annotations {
		mirror.Annotations[key] = v
	}
	mirror.Annotations[spec.AnnotationConfigMirror] = string(pod.UID)
	_, err := client.Create(ctx, k.Client, mirror)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the mirror of static pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (s *staticPods) deleteMirror(ctx context.Context, mirror *corev1.Pod) error {
	zero := int64(0)
	err := client.Delete[*corev1.Pod](ctx, s.k.Client, mirror.Namespace, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete mirror pod %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}

// mirrorEvent handles a change of a mirror pod: a new one gets its status, a deleted one is created
// again.
func (k *Kubelet) mirrorEvent(e client.TypedEvent[*corev1.Pod]) {
	if w := k.worker(types.UID(e.Object.Annotations[spec.AnnotationConfigMirror])); w != nil && e.Type == client.Added {
		w.Republish()
	}
	if e.Type == client.Deleted || e.Object.DeletionTimestamp != nil || e.Type == client.Added {
		k.static.look()
	}
}
