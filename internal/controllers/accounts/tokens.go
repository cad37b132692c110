package accounts

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Tokens fills Secrets of type kubernetes.io/service-account-token with a token that does not
// expire, and deletes them with their service account. Pods use bound tokens instead; these Secrets
// are created by users.
var Tokens = controller.Starter{Name: "serviceaccount-token-controller", Account: "system:kube-controller-manager", Run: runTokens}

func runTokens(ctx context.Context, env controller.Env) error {
	secrets, err := client.Open[*corev1.Secret](ctx, env.Client, client.Scope{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return fmt.Errorf("open secrets: %w", err)
	}
	accounts, err := client.Open[*corev1.ServiceAccount](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open service accounts: %w", err)
	}
	secrets.AddIndex("service-account", func(s *corev1.Secret) []string {
		return []string{s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]}
	})
	t := tokens{env: env, secrets: secrets}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "serviceaccount-token-controller",
		Inputs: []controller.Input{
			controller.Self(secrets),
			controller.On(accounts, func(e client.TypedEvent[*corev1.ServiceAccount]) []controller.Key {
				var keys []controller.Key
				for _, s := range secrets.ByIndex("service-account", e.Object.Namespace+"/"+e.Object.Name) {
					keys = append(keys, controller.KeyOf(s))
				}
				return keys
			}),
		},
		Sources:   []func(context.Context, func(controller.Key, time.Duration)){controller.OnAuthority(env, controller.Self(secrets))},
		Reconcile: t.reconcile,
	}
	return loop.Run(ctx)
}

type tokens struct {
	env     controller.Env
	secrets client.ViewOf[*corev1.Secret]
}

func (t tokens) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	var done controller.Result
	secret, ok := t.secrets.Get(key.Namespace, key.Name)
	name := ""
	if ok {
		name = secret.Annotations[corev1.ServiceAccountNameKey]
	}
	if name == "" || secret.DeletionTimestamp != nil {
		return done, nil
	}
	account, err := client.Get[*corev1.ServiceAccount](ctx, t.env.Client, key.Namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return done, err
	}
	uid := secret.Annotations[corev1.ServiceAccountUIDKey]
	if err != nil || (uid != "" && uid != string(account.UID)) {
		err := client.Delete[*corev1.Secret](ctx, t.env.Client, key.Namespace, key.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return done, err
	}
	changed := secret.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string][]byte{}
	}
	changed.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	if ca := t.env.Config.Authority().CACert; len(ca) > 0 {
		changed.Data[corev1.ServiceAccountRootCAKey] = ca
	}
	if len(changed.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		changed.Data[corev1.ServiceAccountNamespaceKey] = []byte(key.Namespace)
	}
	stale := t.env.Config.LegacyTokenStale
	if old := changed.Data[corev1.ServiceAccountTokenKey]; len(old) == 0 || stale != nil && stale(string(old)) {
		if t.env.Config.LegacyToken == nil {
			return done, controller.Terminal(fmt.Errorf("secret %s requests a service account token, but this process has no signing key", key))
		}
		token, err := t.env.Config.LegacyToken(account, changed)
		if err != nil {
			return done, fmt.Errorf("sign token for secret %s: %w", key, err)
		}
		delete(changed.Annotations, auth.AnnotationReplacedToken)
		if len(old) > 0 {
			changed.Annotations[auth.AnnotationReplacedToken] = auth.ReplacedToken(old)
		}
		changed.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if uid != "" && equalData(secret.Data, changed.Data) {
		return done, nil
	}
	_, err = client.Update(ctx, t.env.Client, changed)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return done, err
}

func equalData(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || !bytes.Equal(v, w) {
			return false
		}
	}
	return true
}
