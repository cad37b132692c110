package controlplane

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

const testLeaderKey = "/knarr/leaders/control-plane"

// sea is a store that several servers share, and a record of their commits.
type sea struct {
	store.Store
	keys string // the folder of the cluster's keys, once a server has made them
	// before, if set, is called before each commit with the server's name and the first key.
	before func(server, key string)
	// logs, if set, also receives the servers' logs.
	logs io.Writer
	// configure, if set, changes the configuration of the servers.
	configure func(*config.Config)
	mu        sync.Mutex
	commits   []commit
}

type commit struct {
	server   string
	key      string // of the first operation
	fence    int64  // revision of the term that the commit depended on; 0 means none
	revision int64
}

func newSea(t *testing.T) *sea {
	t.Helper()
	e, err := etcd.Open(t.Context(), etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), UnsafeNoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return &sea{Store: e}
}

// link is one server's connection to the sea.
type link struct {
	*sea
	name string
	// cut makes every call fail: for the others, the server is dead.
	cut atomic.Bool
	// paused keeps the election of this server from noticing anything: its lease expires, while it
	// believes to lead and to be alone.
	paused atomic.Bool
	leads  func() bool // whether the server believes to lead
}

func (l *link) Alone() bool { return l.paused.Load() && l.leads() }

// Close leaves the sea to the other servers.
func (l *link) Close() error { return nil }

func (l *link) err() error {
	if l.cut.Load() {
		return store.ErrUnavailable
	}
	return nil
}

func (l *link) Get(ctx context.Context, key string, revision int64) (*store.KeyValue, int64, error) {
	if err := l.err(); err != nil {
		return nil, 0, err
	}
	return l.sea.Get(ctx, key, revision)
}

func (l *link) Range(ctx context.Context, prefix string, o store.RangeOptions) (store.RangeResult, error) {
	if err := l.err(); err != nil {
		return store.RangeResult{}, err
	}
	return l.sea.Range(ctx, prefix, o)
}

func (l *link) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if err := l.err(); err != nil {
		return 0, err
	}
	if l.paused.Load() && ttl < time.Hour { // not a lease of Events
		return 0, store.ErrUnavailable
	}
	return l.sea.Grant(ctx, ttl)
}

func (l *link) KeepAlive(ctx context.Context, id store.LeaseID) error {
	if err := l.err(); err != nil || l.paused.Load() {
		return err
	}
	return l.sea.KeepAlive(ctx, id)
}

func (l *link) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.sea.Revoke(ctx, id)
}

// Watch hides the election from a server that will be paused.
func (l *link) Watch(ctx context.Context, prefix string, after int64) (store.Stream, error) {
	stream, err := l.sea.Watch(ctx, prefix, after)
	if err == nil && strings.HasPrefix(prefix, testLeaderKey) {
		return deaf{stream, l}, nil
	}
	return stream, err
}

type deaf struct {
	store.Stream
	link *link
}

func (d deaf) Next(ctx context.Context) (store.Batch, error) {
	b, err := d.Stream.Next(ctx)
	if d.link.paused.Load() && err == nil {
		<-ctx.Done()
		return b, ctx.Err()
	}
	return b, err
}

func (l *link) Commit(ctx context.Context, conditions []store.Condition, ops ...store.Op) (store.TxnResult, error) {
	if err := l.err(); err != nil {
		return store.TxnResult{}, err
	}
	if l.sea.before != nil && len(ops) > 0 {
		l.sea.before(l.name, ops[0].Key)
	}
	res, err := l.sea.Store.Commit(ctx, conditions, ops...)
	if err == nil && res.Succeeded && len(ops) > 0 {
		c := commit{server: l.name, key: ops[0].Key, revision: res.Revision}
		for _, cond := range conditions {
			if cond.Key == testLeaderKey+"/term" {
				c.fence = cond.ModRevision
			}
		}
		l.sea.mu.Lock()
		l.sea.commits = append(l.sea.commits, c)
		l.sea.mu.Unlock()
	}
	return res, err
}

// check verifies that no two leaders acted: each write of a leader belongs to the term that was the
// newest at its revision, and each write that only controllers and schedulers do is one of a
// leader.
func (s *sea) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.commits, func(a, b commit) int { return int(a.revision - b.revision) })
	var term int64
	var leader string
	fenced := map[string]int{}
	for _, c := range s.commits {
		if c.key == testLeaderKey+"/term" {
			term, leader = c.revision, c.server
			continue
		}
		if strings.HasPrefix(c.key, testLeaderKey) {
			continue
		}
		if c.fence != 0 {
			fenced[c.server]++
			if c.fence != term || c.server != leader {
				t.Errorf("revision %d: %s wrote %s in term %d; %s leads in term %d", c.revision, c.server, c.key, c.fence, leader, term)
			}
			continue
		}
		for _, kind := range []string{"pods", "replicasets", "serviceaccounts", "leases/kube-system/kube-"} {
			if strings.HasPrefix(c.key, "/registry/"+kind) {
				t.Errorf("revision %d: %s wrote %s without a fence", c.revision, c.server, c.key)
			}
		}
	}
	t.Logf("fenced writes: %v", fenced)
}

// boat is a server of the sea.
type boat struct {
	*Server
	*link
	name   string
	admin  client.Interface
	cancel context.CancelFunc
	ended  chan error
}

func (s *sea) launch(t *testing.T, name string) *boat {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.AdvertiseAddress, cfg.NodeName = t.TempDir(), "127.0.0.1:0", "127.0.0.1", name
	cfg.APIServer.ShutdownIdle.Duration = 1
	if s.configure != nil {
		s.configure(&cfg)
	}
	if s.keys == "" {
		s.keys = cfg.Path("pki")
	} else if err := os.CopyFS(cfg.Path("pki"), os.DirFS(s.keys)); err != nil {
		t.Fatal(err)
	}
	b := &boat{name: name, link: &link{sea: s, name: name}, ended: make(chan error, 1)}
	out := t.Output()
	if s.logs != nil {
		out = io.MultiWriter(out, s.logs)
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})).With("server", name)
	b.link.leads = b.leads
	b.Server = New(Options{Config: &cfg, Log: log, ShutdownTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b.cancel = cancel
	ready := make(chan struct{})
	go func() {
		b.ended <- process.Run(ctx, []process.Phase{
			{{Name: "keys", Start: b.StartKeys}, {Name: "store", Start: func(context.Context) (func() error, error) {
				b.raw, b.db, b.alone = b.link, b.link, b.link.Alone
				return nil, nil
			}}},
			{{Name: "API server", Start: b.StartAPI}},
			{{Name: "leadership", Start: b.StartLeadership}},
			{{Name: "controllers", Start: b.StartControllers}, {Name: "scheduler", Start: b.StartScheduler}, {Name: "first objects", Start: b.AwaitFirstObjects}},
		}, nil, func() { close(ready) }, log)
	}()
	t.Cleanup(func() { b.stop(t) })
	select {
	case <-ready:
	case err := <-b.ended:
		b.ended <- err
		t.Fatalf("%s: %v", name, err)
	}
	b.admin = b.Client(auth.Component("tester", auth.GroupMasters))
	return b
}

func (b *boat) stop(t *testing.T) {
	t.Helper()
	if b.cancel == nil {
		return
	}
	b.cancel()
	b.cancel = nil
	if err := <-b.ended; err != nil {
		t.Errorf("%s: %v", b.name, err)
	}
}

func comes(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func (b *boat) leads() bool {
	b.leadership.mu.Lock()
	defer b.leadership.mu.Unlock()
	return b.leadership.term != nil
}

// leader waits for the leader among the boats.
func leader(t *testing.T, boats ...*boat) (found *boat) {
	t.Helper()
	comes(t, "a leader", func() bool {
		for _, b := range boats {
			if b.leads() {
				found = b
				return true
			}
		}
		return false
	})
	return found
}

func without(boats []*boat, b *boat) []*boat {
	return slices.DeleteFunc(slices.Clone(boats), func(o *boat) bool { return o == b })
}

func (b *boat) makeNode(t *testing.T, name string) {
	t.Helper()
	_, err := client.Create(t.Context(), b.admin, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Capacity:    corev1.ResourceList{corev1.ResourcePods: resource.MustParse("99")},
		Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("99")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *boat) deploy(t *testing.T, name string, replicas int32) {
	t.Helper()
	label := map[string]string{"app": name}
	_, err := client.Create(t.Context(), b.admin, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *boat) pods(t *testing.T, app string) []*corev1.Pod {
	t.Helper()
	view, err := client.Open[*corev1.Pod](t.Context(), b.admin, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	return view.List("default", labels.SelectorFromSet(labels.Set{"app": app}))
}

// sails waits until all pods of a Deployment are bound, and fails if there are more than wanted.
func (b *boat) sails(t *testing.T, app string, replicas int) {
	t.Helper()
	comes(t, fmt.Sprintf("%d bound pods of %s", replicas, app), func() bool {
		pods := b.pods(t, app)
		return len(pods) == replicas && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
	})
}

func (b *boat) lease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	lease, err := client.Get[*coordinationv1.Lease](t.Context(), b.admin, "kube-system", name)
	if err != nil {
		return nil
	}
	return lease
}

var mirrored = []string{"kube-controller-manager", "kube-scheduler"}

// shownAs waits until the Leases name the leader.
func (b *boat) shownAs(t *testing.T, holder string) (transitions int32) {
	t.Helper()
	for _, name := range mirrored {
		comes(t, fmt.Sprintf("Lease %s is held by %s", name, holder), func() bool {
			lease := b.lease(t, name)
			if lease == nil || lease.Spec.HolderIdentity == nil || !strings.HasPrefix(*lease.Spec.HolderIdentity, holder) {
				return false
			}
			transitions = *lease.Spec.LeaseTransitions
			return holder != "" || *lease.Spec.HolderIdentity == ""
		})
	}
	return transitions
}

// wantMetric checks that the metric of each Lease shows whether the boat leads.
func (b *boat) wantMetric(t *testing.T, want float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(b.leadership)
	families, err := r.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "leader_election_master_status" || len(families[0].GetMetric()) != len(mirrored) {
		t.Fatalf("%s: %v, %v", b.name, families, err)
	}
	for _, m := range families[0].GetMetric() {
		if got := m.GetGauge().GetValue(); got != want {
			t.Errorf("%s: %v is %v, want %v", b.name, m.GetLabel(), got, want)
		}
	}
}
