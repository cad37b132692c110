// Package controllertest runs controllers in the test's process, on the real API server over a real
// store. Tests play the other components: a scheduler, and kubelets that make pods run at once.
package controllertest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/store/etcd"
	"github.com/knarr-project/knarr/internal/store/storetest"
)

// Cluster is an API server with a client that is allowed everything.
type Cluster struct {
	t      testing.TB
	Client client.Interface
	Events *Events
	Config controller.Config
	// Clock is the controllers' time; nil is the machine's.
	Clock  clock.WithTicker
	config apiserver.Config
	server *apiserver.Server
}

type allowAll struct{}

func (allowAll) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "", nil
}

// New starts an API server with the namespace "default". It stops with the test. gates are feature
// gates to turn on.
func New(t testing.TB, gates ...string) *Cluster {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	st, err := etcd.Open(t.Context(), etcd.Options{DataDir: t.TempDir(), UnsafeNoSync: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	config := apiserver.Config{
		Store: st, Logger: log, Security: apiserver.Security{Authorizer: allowAll{}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}, Gates: gates,
	}
	s, err := apiserver.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := &Cluster{t: t, config: config, server: s, Client: s.Client(auth.Component("tester", auth.GroupMasters)), Events: &Events{}, Config: controller.Config{
		PodCIDR: "10.42.0.0/16", NodeCIDRMaskSize: 24, ServiceCIDR: "10.43.0.0/16", CACert: []byte("CA"), TerminatedPodLimit: 12500,
	}}
	c.ensureNamespace("default")
	return c
}

// Serve runs the whole server until the test ends, so that it also serves custom resources.
func (c *Cluster) Serve() {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.server.Run(ctx, l, nil) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("server: %v", err)
		}
	})
}

// As returns a client of another user.
func (c *Cluster) As(user auth.User) client.Interface { return c.server.Client(user) }

// Behind returns a client of a second server on the same store. After hold, that server sees no
// changes until pass is called.
func (c *Cluster) Behind() (behind client.Interface, hold func() (pass func())) {
	c.t.Helper()
	config, lagging := c.config, storetest.Lag(c.config.Store)
	config.Store = lagging
	s, err := apiserver.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return s.Client(auth.Component("tester", auth.GroupMasters)), lagging.Hold
}

func (c *Cluster) ensureNamespace(name string) {
	_, err := client.Create(c.t.Context(), c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// Run runs controllers until the test ends, and waits for them.
func (c *Cluster) Run(starters ...controller.Starter) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- controller.RunAll(ctx, starters, func(controller.Starter) (controller.Env, error) {
			return controller.Env{Client: c.Client, Events: c.Events, Config: c.Config, Clock: c.Clock}, nil
		})
	}()
	c.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				c.t.Errorf("controllers: %v", err)
			}
		case <-time.After(time.Minute):
			c.t.Error("controllers did not end")
		}
	})
}

// RunPods plays scheduler and kubelet until the test ends: it binds pods to the node, makes them
// run and be ready, and removes deleted ones. behave can change a pod's status: it gets a copy that
// says running and ready, and returns false to leave the pod alone.
func (c *Cluster) RunPods(node string, behave func(*corev1.Pod) bool) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	pods, err := client.Open[*corev1.Pod](ctx, c.Client, client.Scope{})
	if err != nil {
		c.t.Fatal(err)
	}
	k := kubelet{c: c, pods: pods, node: node, behave: behave}
	loop := controller.Loop{Name: "kubelet", Inputs: []controller.Input{controller.Self(pods)}, Workers: 8, Reconcile: k.reconcile}
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
}

type kubelet struct {
	c      *Cluster
	pods   client.ViewOf[*corev1.Pod]
	node   string
	behave func(*corev1.Pod) bool
}

func (k kubelet) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	p, ok := k.pods.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	if p.DeletionTimestamp != nil {
		if !controller.PodEnded(p) {
			p = p.DeepCopy()
			p.Status.Phase = corev1.PodFailed
			if _, err := client.UpdateStatus(ctx, k.c.Client, p); err != nil {
				return controller.Result{}, ignoreNotFound(err)
			}
		}
		now := int64(0)
		return controller.Result{}, ignoreNotFound(client.Delete[*corev1.Pod](ctx, k.c.Client, key.Namespace, key.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
	if p.Spec.NodeName == "" {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: k.nodeFor(p)}}
		_, err := k.c.Client.CreateSub(ctx, corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name, "binding", binding, metav1.CreateOptions{})
		return controller.Result{}, ignoreNotFound(err)
	}
	if p.Status.Phase != corev1.PodPending && p.Status.Phase != "" {
		return controller.Result{}, nil
	}
	p = p.DeepCopy()
	now := metav1.Now()
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
	p.Status.PodIP = fmt.Sprintf("10.42.0.%d", 2+len(p.Name)%200)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	if k.behave != nil && !k.behave(p) {
		return controller.Result{}, nil
	}
	_, err := client.UpdateStatus(ctx, k.c.Client, p)
	return controller.Result{}, ignoreNotFound(err)
}

// nodeFor returns the node that the pod is pinned to (a DaemonSet's), else the only node.
func (k kubelet) nodeFor(p *corev1.Pod) string {
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			if len(term.MatchFields) == 1 {
				return term.MatchFields[0].Values[0]
			}
		}
	}
	return k.node
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Eventually waits for at most a minute until the condition returns "". Otherwise the condition
// returns what is still wrong.
func (c *Cluster) Eventually(what string, condition func() string) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		wrong := condition()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: %s", what, wrong)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Events records events; it implements client.Recorder.
type Events struct {
	mu   sync.Mutex
	list []string
}

// Eventf records "type reason note".
func (e *Events) Eventf(_, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, eventType+" "+reason+" "+fmt.Sprintf(note, args...))
}

// List returns the recorded events.
func (e *Events) List() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.list...)
}

// Create creates obj, or fails the test.
func Create[T client.Object](c *Cluster, obj T) T {
	c.t.Helper()
	if obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	created, err := client.Create(c.t.Context(), c.Client, obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

// List lists a kind in the namespace "default".
func List[T client.Object](c *Cluster) []T {
	c.t.Helper()
	v, err := client.Open[T](c.t.Context(), c.Client, client.Scope{})
	if err != nil {
		c.t.Fatal(err)
	}
	return v.List("", nil)
}

// Node creates a ready node.
func Node(c *Cluster, name string, labels map[string]string) *corev1.Node {
	c.t.Helper()
	n, err := client.Create(c.t.Context(), c.Client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if err != nil {
		c.t.Fatal(err)
	}
	return Retry(c, n, func(n *corev1.Node) {
		now := metav1.Now()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}}
	}, "status")
}

// Retry changes the newest state of obj, and retries after conflicts.
func Retry[T client.Object](c *Cluster, obj T, change func(T), subresource ...string) T {
	c.t.Helper()
	for {
		fresh, err := client.Get[T](c.t.Context(), c.Client, obj.GetNamespace(), obj.GetName())
		if err != nil {
			c.t.Fatal(err)
		}
		fresh = fresh.DeepCopyObject().(T)
		change(fresh)
		updated, err := c.Client.Update(c.t.Context(), api.ResourceOf(fresh), fresh, metav1.UpdateOptions{}, subresource...)
		if err == nil {
			return updated.(T)
		}
		if !apierrors.IsConflict(err) {
			c.t.Fatal(err)
		}
	}
}

// Template returns a pod template with the label app=NAME.
func Template(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image:1"}}},
	}
}
