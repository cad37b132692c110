package operator

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/knarr-project/knarr/knarrtest"
	"github.com/knarr-project/knarr/knarrtest/envtest"
)

// run runs the operator until the test ends.
func run(t *testing.T, c *knarrtest.Cluster, change func(*ctrl.Options), setup func(ctrl.Manager)) client.Client {
	t.Helper()
	once := true // controllers of two tests have the same name
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &once}}
	if change != nil {
		change(&options)
	}
	m, err := ctrl.NewManager(c.Config(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Reconciler{Client: m.GetClient()}).SetupWithManager(m); err != nil {
		t.Fatal(err)
	}
	if setup != nil {
		setup(m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return direct
}

func greet(name string, replicas int64) *unstructured.Unstructured {
	greeting := New()
	greeting.SetNamespace("default")
	greeting.SetName(name)
	greeting.Object["spec"] = map[string]any{"name": name, "replicas": replicas}
	return greeting
}

func TestTheStatusCountsReadyReplicas(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithCRDs("config/crd"), knarrtest.WithNodes(2))
	api := run(t, c, nil, nil)
	greeting := greet("world", 3)
	if err := api.Create(t.Context(), greeting); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := api.Get(ctx, client.ObjectKeyFromObject(greeting), greeting); err != nil {
			return false, err
		}
		ready, _, _ := unstructured.NestedInt64(greeting.Object, "status", "ready")
		return ready == 3, nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPodsOfADeletedGreetingAreDeleted(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithCRDs("config/crd"), knarrtest.WithNodes(1))
	api := run(t, c, nil, nil)
	greeting := greet("world", 1)
	if err := api.Create(t.Context(), greeting); err != nil {
		t.Fatal(err)
	}
	pods := func(ctx context.Context) int {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(Kind.GroupVersion().WithKind("PodList"))
		list.APIVersion = "v1"
		if err := api.List(ctx, list, client.InNamespace("default")); err != nil {
			t.Error(err)
		}
		return len(list.Items)
	}
	until := func(n int) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) { return pods(ctx) == n, nil }); err != nil {
			t.Fatalf("%d pods never: %v", n, err)
		}
	}
	until(1)
	if err := api.Delete(t.Context(), greeting); err != nil {
		t.Fatal(err)
	}
	until(0)
}

// forbid is a validating webhook. It refuses a Greeting to "nobody".
func forbid(_ context.Context, request admission.Request) admission.Response {
	if strings.Contains(string(request.Object.Raw), `"nobody"`) {
		return admission.Denied("nobody is not greeted")
	}
	return admission.Allowed("")
}

func TestTheWebhookRefusesNobody(t *testing.T) {
	t.Parallel()
	c := knarrtest.Start(t, knarrtest.WithCRDs("config/crd"), knarrtest.WithWebhooks("config/webhook"))
	hooks := c.Webhooks()
	serving := webhook.NewServer(webhook.Options{Host: hooks.Host, Port: hooks.Port, CertDir: hooks.CertDir})
	api := run(t, c, func(o *ctrl.Options) { o.WebhookServer = serving }, func(m ctrl.Manager) {
		m.GetWebhookServer().Register("/validate-greeting", &webhook.Admission{Handler: admission.HandlerFunc(forbid)})
	})
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := api.Create(ctx, greet("nobody", 1))
		return apierrors.IsForbidden(err), nil // until the manager serves it, the webhook fails
	})
	if err != nil {
		t.Fatal("the webhook refuses nothing")
	}
	if err := api.Create(t.Context(), greet("world", 1)); err != nil {
		t.Error(err)
	}
}

// TestWithTheInterfaceOfEnvtest shows how a suite written for envtest runs on knarrtest.
func TestWithTheInterfaceOfEnvtest(t *testing.T) {
	t.Parallel()
	environment := &envtest.Environment{CRDDirectoryPaths: []string{"config/crd"}, ErrorIfCRDPathMissing: true}
	access, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	api, err := client.New(access, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bad := greet("", 1)
	bad.SetName("empty")
	if err := api.Create(t.Context(), bad); apierrors.ReasonForError(err) != metav1.StatusReasonInvalid || err.(apierrors.APIStatus).Status().Code != http.StatusUnprocessableEntity {
		t.Errorf("a greeting without a name: %v", err)
	}
}
