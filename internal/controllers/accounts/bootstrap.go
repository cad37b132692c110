package accounts

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// BootstrapSigner signs the kubeconfig in ConfigMap kube-public/cluster-info with each bootstrap
// token that allows signing. A joining machine that knows such a token can trust the kubeconfig.
var BootstrapSigner = controller.Starter{Name: "bootstrap-signer-controller", Account: "bootstrap-signer", Run: runBootstrapSigner}

// TokenCleaner deletes bootstrap tokens that have expired.
var TokenCleaner = controller.Starter{Name: "token-cleaner-controller", Account: "token-cleaner", Run: runTokenCleaner}

// The format of bootstrap tokens and of the signed ConfigMap (API reference, "Authenticating with
// Bootstrap Tokens").
const (
	bootstrapType    = corev1.SecretType("bootstrap.kubernetes.io/token")
	clusterInfo      = "cluster-info"
	kubeconfigKey    = "kubeconfig"
	signaturePrefix  = "jws-kubeconfig-"
	tokenIDKey       = "token-id"
	tokenSecretKey   = "token-secret"
	expirationKey    = "expiration"
	signingUsageKey  = "usage-bootstrap-signing"
	tokenNamePrefix  = "bootstrap-token-"
	tokensInterested = "type=bootstrap.kubernetes.io/token"
)

func openTokens(ctx context.Context, env controller.Env) (client.ViewOf[*corev1.Secret], error) {
	v, err := client.Open[*corev1.Secret](ctx, env.Client, client.Scope{Namespace: metav1.NamespaceSystem, FieldSelector: tokensInterested})
	if err != nil {
		err = fmt.Errorf("open bootstrap tokens: %w", err)
	}
	return v, err
}

// expiryOf returns the time when a token expires; ok is false for a token that never does.
func expiryOf(s *corev1.Secret) (at time.Time, ok bool) {
	text := string(s.Data[expirationKey])
	if text == "" {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, true // treat an unreadable time as expired
	}
	return at, true
}

func runBootstrapSigner(ctx context.Context, env controller.Env) error {
	tokens, err := openTokens(ctx, env)
	if err != nil {
		return err
	}
	infos, err := client.Open[*corev1.ConfigMap](ctx, env.Client, client.Scope{Namespace: metav1.NamespacePublic, FieldSelector: "metadata.name=" + clusterInfo})
	if err != nil {
		return fmt.Errorf("open config map %s: %w", clusterInfo, err)
	}
	always := func(client.Event) []controller.Key {
		return []controller.Key{{Namespace: metav1.NamespacePublic, Name: clusterInfo}}
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   "bootstrap-signer-controller",
		Inputs: []controller.Input{{View: tokens.View, Keys: always}, {View: infos.View, Keys: always}},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			info, ok := infos.Get(key.Namespace, key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			data, wait, err := signed(info.Data, tokens.List("", nil), env.Now())
			if err != nil {
				return controller.Result{}, err
			}
			if maps.Equal(data, info.Data) {
				return controller.Result{After: wait}, nil
			}
			info = info.DeepCopy()
			info.Data = data
			_, err = client.Update(ctx, env.Client, info)
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return controller.Result{After: wait}, err
		},
	}
	return loop.Run(ctx)
}

// signed returns the data with a signature of every token valid at now, and without any other
// signature. wait is the time until the first of these tokens expires.
func signed(data map[string]string, tokens []*corev1.Secret, now time.Time) (out map[string]string, wait time.Duration, err error) {
	out = map[string]string{}
	for k, v := range data {
		if !strings.HasPrefix(k, signaturePrefix) {
			out[k] = v
		}
	}
	kubeconfig, ok := data[kubeconfigKey]
	if !ok {
		return out, 0, nil
	}
	for _, t := range tokens {
		id, secret := string(t.Data[tokenIDKey]), string(t.Data[tokenSecretKey])
		if id == "" || secret == "" || t.Name != tokenNamePrefix+id || string(t.Data[signingUsageKey]) != "true" || t.DeletionTimestamp != nil {
			continue
		}
		if at, ok := expiryOf(t); ok {
			rest := at.Sub(now)
			if rest <= 0 {
				continue
			}
			if wait == 0 || rest < wait {
				wait = rest
			}
		}
		if out[signaturePrefix+id], err = detachedSignature(kubeconfig, id, secret); err != nil {
			return nil, 0, err
		}
	}
	return out, wait, nil
}

// detachedSignature returns a JWS by HS256 with detached content (RFC 7515, appendix F).
func detachedSignature(content, id, secret string) (string, error) {
	header, err := json.Marshal(struct {
		Alg string `json:"alg"`
		Kid string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	mac := hmac.New(sha256.New, []byte(id+"."+secret))
	mac.Write([]byte(encode(header) + "." + encode([]byte(content))))
	return encode(header) + ".." + encode(mac.Sum(nil)), nil
}

func runTokenCleaner(ctx context.Context, env controller.Env) error {
	tokens, err := openTokens(ctx, env)
	if err != nil {
		return err
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   "token-cleaner-controller",
		Inputs: []controller.Input{controller.Self(tokens)},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			s, ok := tokens.Get(key.Namespace, key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			at, expires := expiryOf(s)
			if !expires {
				return controller.Result{}, nil
			}
			if rest := at.Sub(env.Now()); rest > 0 {
				return controller.Result{After: rest}, nil
			}
			err := client.Delete[*corev1.Secret](ctx, env.Client, key.Namespace, key.Name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return controller.Result{}, err
		},
	}
	return loop.Run(ctx)
}
