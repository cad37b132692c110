package run

import (
	"context"
	"log/slog"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

// If such a webhook kept the server down, it could not be removed. The refused objects are stored
// once it is removed.
func TestTheServerStartsDespiteAWebhookThatRefusesEverything(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.AdvertiseAddress, cfg.NodeName = t.TempDir(), nettest.FreeAddress(t), "192.0.2.1", "sea"
	start := func() (admin client.Interface, stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- APIServer(ctx, Params{Config: &cfg, Log: slog.New(slog.DiscardHandler), Ready: func() { close(ready) }, unsynced: true})
		}()
		stop = func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("ended before it was ready: %v", err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", cfg.AdminKubeconfig())
		if err == nil {
			admin, err = client.Remote(config)
		}
		if err != nil {
			t.Fatal(err)
		}
		return admin, stop
	}
	eventually := func(what string, fn func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !fn(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	const role = "system:node-proxier"
	isThere := func(c client.Interface) bool {
		_, err := client.Get[*rbacv1.ClusterRole](t.Context(), c, "", role)
		return err == nil
	}

	c, stop := start()
	eventually("the bootstrap policy is stored", func() bool {
		// The last role of the policy.
		_, err := client.Get[*rbacv1.ClusterRole](t.Context(), c, "", "cluster-admin")
		return err == nil && isThere(c)
	})
	if err := client.Delete[*rbacv1.ClusterRole](t.Context(), c, "", role, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	fail, none, url := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, "https://127.0.0.1:1/nobody"
	if _, err := client.Create(t.Context(), c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "broken.example.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"*"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}}},
	}}}); err != nil {
		t.Fatal(err)
	}
	stop()

	c, stop = start()
	defer stop()
	eventually("the webhook refuses", func() bool {
		_, err := client.Create(t.Context(), c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "any-"}})
		return apierrors.IsInternalError(err)
	})
	if isThere(c) {
		t.Error("the role was stored although the webhook refuses it")
	}
	if err := client.Delete[*admissionregistrationv1.ValidatingWebhookConfiguration](t.Context(), c, "", "broken", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the role is back", func() bool { return isThere(c) })
}
