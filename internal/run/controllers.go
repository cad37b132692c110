package run

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/token"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controllers"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/insight/because"
)

// Controllers runs the controllers alone, while their lease makes them the leader.
func Controllers(ctx context.Context, p Params) error {
	const name = "kube-controller-manager"
	metrics := controllers.NewMetrics()
	served := &component{name: name, leading: controller.NewLeading(name), parts: controllers.Names(), collectors: metrics.Collectors(), configzName: "kubecontrollermanager.config.k8s.io", configz: controllersConfigz(p.Config)}
	return p.alone(ctx, "controllers", served, func(ctx context.Context, c client.Interface, reach *rest.Config) error {
		cfg, err := aloneConfig(p.Config, reach)
		if err != nil {
			return err
		}
		return lead(ctx, c, name, served.leading, func(ctx context.Context) error {
			return controlplane.RunControllers(because.Track(ctx), cfg, metrics, func(account string) (client.Interface, error) {
				if !p.Config.Controllers.OwnAccounts || strings.HasPrefix(account, "system:") {
					return c, nil
				}
				return asAccount(ctx, c, reach, account)
			})
		})
	})
}

// controllersConfigz returns the settings in the shape of upstream's configuration.
func controllersConfigz(c *config.Config) map[string]any {
	return map[string]any{
		"apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1", "kind": "KubeControllerManagerConfiguration",
		"KubeCloudShared":         map[string]any{"AllocateNodeCIDRs": c.Controllers.AllocateNodeCIDRs},
		"NodeLifecycleController": map[string]any{"NodeMonitorGracePeriod": c.NodeMonitorGrace.Duration.String()},
		"LegacySATokenCleaner":    map[string]any{"CleanUpPeriod": c.LegacyTokenPeriod.Duration.String()},
		"SAController":            map[string]any{"RootCAFile": c.Controllers.RootCA, "ServiceAccountKeyFile": c.Controllers.ServiceAccountKey},
		"CSRSigningController": map[string]any{
			"ClusterSigningCertFile": c.Controllers.SigningCert, "ClusterSigningKeyFile": c.Controllers.SigningKey,
			"ClusterSigningDuration": c.Controllers.SigningDuration.Duration.String(),
		},
	}
}

// aloneConfig reads the keys of controllers that run in a process of their own.
func aloneConfig(c *config.Config, reach *rest.Config) (controller.Config, error) {
	cfg := controlplane.ControllerConfig(c)
	if !c.Controllers.AllocateNodeCIDRs {
		cfg.PodCIDR = ""
	}
	cfg.LocalStorage = false // another API server has no role for it, and its cluster has classes
	cfg.CACert = reach.CAData
	root := c.Controllers.RootCA
	// Data in a kubeconfig takes precedence over a file, as for the connection itself.
	if root == "" && len(reach.CAData) == 0 {
		root = reach.CAFile
	}
	for _, file := range []struct {
		flag, path string
		into       *[]byte
	}{
		{"root-ca-file", root, &cfg.CACert},
		{"cluster-signing-cert-file", c.Controllers.SigningCert, &cfg.SigningCert},
		{"cluster-signing-key-file", c.Controllers.SigningKey, &cfg.SigningKey},
	} {
		if file.path == "" {
			continue
		}
		data, err := os.ReadFile(file.path)
		if err != nil {
			return cfg, fmt.Errorf("%s: %w", file.flag, err)
		}
		*file.into = data
	}
	if path := c.Controllers.ServiceAccountKey; path != "" {
		keys, err := pki.ReadSigningKey(path)
		if err != nil {
			return cfg, fmt.Errorf("service-account-private-key-file: %w", err)
		}
		cfg.LegacyToken = func(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
			return token.SignLegacy(keys, account, secret)
		}
	}
	return cfg, nil
}

// asAccount returns a client that writes as a service account of kube-system. It authenticates with
// tokens that it requests through base.
func asAccount(ctx context.Context, base client.Interface, reach *rest.Config, account string) (client.Interface, error) {
	own := rest.AnonymousClientConfig(reach)
	own.UserAgent = reach.UserAgent + "/system:serviceaccount:kube-system:" + account
	own.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedTokenSource(&accountTokens{ctx: ctx, client: base, account: account})))
	return client.RemoteSharing(base, own)
}

// accountTokens requests tokens of a service account and creates the account if it is missing. In a
// new cluster, the controller that creates service accounts is itself waiting for its token.
type accountTokens struct {
	ctx     context.Context // the controllers' context; oauth2 has none for a request
	client  client.Interface
	account string
}

var _ oauth2.TokenSource = (*accountTokens)(nil)

const tokenSeconds = 3600

// Token is called when there is no token yet, and again some time before the last one expires.
func (t *accountTokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	answer, err := t.ask(ctx)
	if apierrors.IsNotFound(err) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: t.account}}
		if _, err = client.Create(ctx, t.client, account); err == nil || apierrors.IsAlreadyExists(err) {
			answer, err = t.ask(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", t.account, err)
	}
	return &oauth2.Token{AccessToken: answer.Status.Token, TokenType: "Bearer", Expiry: answer.Status.ExpirationTimestamp.Time}, nil
}

func (t *accountTokens) ask(ctx context.Context) (*authenticationv1.TokenRequest, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64)}}
	*request.Spec.ExpirationSeconds = tokenSeconds
	obj, err := t.client.CreateSub(ctx, api.ResourceOf(&corev1.ServiceAccount{}), metav1.NamespaceSystem, t.account, "token", request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	answer, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, fmt.Errorf("the server answered with a %T", obj)
	}
	return answer, nil
}
