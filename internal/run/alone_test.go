package run

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

// aloneWorld runs an API server, its controllers and its scheduler as if each had a process of its
// own.
type aloneWorld struct {
	cfg   config.Config
	keys  *pki.PKI
	url   string
	admin client.Interface
	audit string
}

func newAloneWorld(t *testing.T) *aloneWorld {
	t.Helper()
	return newAloneWorldAt(t, nettest.FreeAddress(t))
}

func newAloneWorldAt(t *testing.T, address string) *aloneWorld {
	t.Helper()
	w := &aloneWorld{cfg: config.Default(), url: "https://" + address, audit: filepath.Join(t.TempDir(), "audit.log")}
	w.cfg.DataDir, w.cfg.Listen, w.cfg.AdvertiseAddress, w.cfg.NodeName = t.TempDir(), address, "192.0.2.1", "sea"
	w.cfg.APIServer.Audit.LogPath, w.cfg.APIServer.Audit.PolicyFile = w.audit, filepath.Join(t.TempDir(), "policy")
	policy := `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`
	if err := os.WriteFile(w.cfg.APIServer.Audit.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.keys, err = pki.Open(pki.Config{Dir: w.cfg.Path("pki"), Names: []string{"127.0.0.1"}, NodeName: "sea"}); err != nil {
		t.Fatal(err)
	}
	w.start(t, &w.cfg, APIServer)
	config, err := clientcmd.BuildConfigFromFlags("", w.cfg.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if w.admin, err = client.Remote(config); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAServerIsReadyWhenTheFirstObjectsExist(t *testing.T) {
	w := newAloneWorld(t)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := client.Get[*corev1.Namespace](t.Context(), w.admin, "", name); err != nil {
			t.Error(err)
		}
	}
}

func TestAServerIsReachedAtItsOnlyListenAddress(t *testing.T) {
	w := newAloneWorldAt(t, strings.Replace(nettest.FreeAddress(t), "127.0.0.1", "127.0.0.2", 1))
	if _, err := client.Get[*corev1.Namespace](t.Context(), w.admin, "", "default"); err != nil {
		t.Error(err)
	}
}

// start runs a component until the test ends, and returns when it is ready.
func (w *aloneWorld) start(t *testing.T, cfg *config.Config, run func(context.Context, Params) error) {
	t.Helper()
	// The test stops the components in reverse order.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	go func() {
		ended <- run(ctx, Params{Config: cfg, Log: log, Ready: func() { close(ready) }, unsynced: true})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("ended before it was ready: %v", err)
	}
}

// beside returns the configuration of a component that runs alone with the leaf's identity.
func (w *aloneWorld) beside(t *testing.T, leaf *pki.Leaf) *config.Config {
	t.Helper()
	cfg := w.cfg
	cfg.DataDir, cfg.Kubeconfig = t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	if err := w.keys.WriteKubeconfig(cfg.Kubeconfig, w.url, leaf); err != nil {
		t.Fatal(err)
	}
	return &cfg
}

// node creates a ready node.
func (w *aloneWorld) node(t *testing.T, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("9")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
	}}
	node.Status.Capacity = node.Status.Allocatable
	create(t, w, node)
}

func (w *aloneWorld) eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestControllersAndSchedulerAloneNeedOnlyBootstrapRoles(t *testing.T) {
	w := newAloneWorld(t)
	controllers := w.beside(t, w.keys.ControllerManager)
	controllers.Controllers.OwnAccounts = true
	controllers.Controllers.ServiceAccountKey = w.cfg.Path("pki", "sa.key")
	w.start(t, controllers, Controllers)
	w.start(t, w.beside(t, w.keys.Scheduler), Scheduler)

	w.node(t, "sea")
	create(t, w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}})
	two, label := int32(2), map[string]string{"app": "ship"}
	create(t, w, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "ship"},
		Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: label}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: label}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"}}},
		}},
	})
	w.eventually(t, "the account that the token is for", func() bool {
		_, err := client.Get[*corev1.ServiceAccount](t.Context(), w.admin, "fleet", "default")
		return err == nil
	})
	create(t, w, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})

	pods, err := client.Open[*corev1.Pod](t.Context(), w.admin, client.Scope{Namespace: "fleet"})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "two pods on the node", func() bool {
		bound := 0
		for _, p := range pods.List("fleet", labels.Everything()) {
			if manager := p.ManagedFields[0].Manager; manager != "kube-controller-manager" {
				t.Fatalf("pods are written by %q", manager)
			}
			if p.Spec.NodeName == "sea" {
				bound++
			}
		}
		return bound == 2
	})
	w.eventually(t, "a token in the Secret", func() bool {
		secret, err := client.Get[*corev1.Secret](t.Context(), w.admin, "fleet", "token")
		return err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0
	})
	if got := len(pods.List("fleet", labels.Everything())); got != 2 {
		t.Errorf("there are %d pods, wanted 2: a controller has not seen its own writes", got)
	}
	w.wantNothingForbidden(t)
}

func create[T client.Object](t *testing.T, w *aloneWorld, obj T) {
	t.Helper()
	var err error
	w.eventually(t, fmt.Sprintf("create a %T", obj), func() bool {
		_, err = client.Create(t.Context(), w.admin, obj)
		return err == nil
	})
}

// wantNothingForbidden reads the audit log of the API server. A refused request means that a
// controller uses another name than upstream's, or does more than upstream's.
func (w *aloneWorld) wantNothingForbidden(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		users[e.User.Username] = true
		if e.ResponseStatus.Code == 403 || e.ResponseStatus.Code == 401 {
			t.Errorf("%s: %s %s: %d", e.User.Username, e.Verb, e.RequestURI, e.ResponseStatus.Code)
		}
	}
	for _, user := range []string{"system:kube-controller-manager", "system:kube-scheduler", "system:serviceaccount:kube-system:deployment-controller", "system:serviceaccount:kube-system:replicaset-controller"} {
		if !users[user] {
			t.Errorf("%s has sent no request", user)
		}
	}
}
