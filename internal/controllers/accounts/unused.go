package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth/node"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// UnusedTokens ends the tokens in Secrets that clusters before v1.24 made for every service account, when nobody has used them for long: it
// marks them as invalid, and deletes them after as long again (KEP-2799). Secrets that people made, and those that a pod uses, stay.
var UnusedTokens = controller.Starter{Name: "legacy-serviceaccount-token-cleaner-controller", Account: "legacy-service-account-token-cleaner", Run: runUnusedTokens}

// The labels that the API server and this controller tell each other by, both dates, and the ConfigMap that says since when the API server
// does its part.
const (
	labelLastUsed     = "kubernetes.io/legacy-token-last-used"
	labelInvalidSince = "kubernetes.io/legacy-token-invalid-since"
	trackingMap       = "kube-apiserver-legacy-service-account-token-tracking"
)

// lookAgain is when it is looked again whether a pod still uses a token, or whether the API server notes uses at all.
const lookAgain = 24 * time.Hour

func runUnusedTokens(ctx context.Context, env controller.Env) error {
	secrets, err := client.Open[*corev1.Secret](ctx, env.Client, client.Scope{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	if err != nil {
		return fmt.Errorf("open secrets: %w", err)
	}
	accounts, err := client.Open[*corev1.ServiceAccount](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open service accounts: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	u := unusedTokens{env: env, secrets: secrets, accounts: accounts, pods: pods}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log,
		Name: "legacy-serviceaccount-token-cleaner-controller",
		Inputs: []controller.Input{
			controller.On(secrets, func(e client.TypedEvent[*corev1.Secret]) []controller.Key {
				if e.Type == client.Modified && e.Old.Labels[labelInvalidSince] != e.Object.Labels[labelInvalidSince] {
					return nil // somebody may let the token count again: until it is looked at next there is time to use it
				}
				return []controller.Key{controller.KeyOf(e.Object)}
			}),
			controller.On(accounts, func(e client.TypedEvent[*corev1.ServiceAccount]) (keys []controller.Key) {
				for _, r := range e.Object.Secrets {
					keys = append(keys, controller.Key{Namespace: e.Object.Namespace, Name: r.Name})
				}
				return keys
			}),
		},
		Reconcile: u.reconcile,
		Resync:    lookAgain,
	}
	return loop.Run(ctx)
}

type unusedTokens struct {
	env      controller.Env
	secrets  client.ViewOf[*corev1.Secret]
	accounts client.ViewOf[*corev1.ServiceAccount]
	pods     client.ViewOf[*corev1.Pod]
}

func (u unusedTokens) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	var done controller.Result
	secret, ok := u.secrets.Get(key.Namespace, key.Name)
	if !ok || secret.DeletionTimestamp != nil || !u.generated(secret) {
		return done, nil
	}
	since, err := u.trackedSince(ctx)
	if err != nil {
		return done, err
	}
	step, due, err := nextStep(secret, since, u.env.Config.LegacyTokenPeriod)
	if err != nil {
		return done, controller.Terminal(fmt.Errorf("secret %s: %w", key, err))
	}
	switch rest := due.Sub(u.env.Now()); {
	case step == waiting, u.mounted(secret):
		return controller.Result{After: lookAgain}, nil
	case rest > 0:
		return controller.Result{After: rest}, nil
	case step == deletion:
		u.env.Logger().Info("the token in a secret is deleted: it has been invalid for long", "component", "controllers", "secret", key.String(), "since", secret.Labels[labelInvalidSince])
		err = client.Delete[*corev1.Secret](ctx, u.env.Client, key.Namespace, key.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}})
	default:
		err, done.After = u.mark(ctx, secret), lookAgain
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // what has changed wakes this again, or is looked at with everything else
	}
	return done, err
}

// generated tells the Secrets that the cluster made once from those that people made: the account knows only the former.
func (u unusedTokens) generated(secret *corev1.Secret) bool {
	account, ok := u.accounts.Get(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
	return ok && secret.Annotations[corev1.ServiceAccountUIDKey] == string(account.UID) &&
		slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name })
}

// mounted tells whether a pod of the namespace uses the Secret, in whatever way.
func (u unusedTokens) mounted(secret *corev1.Secret) bool {
	return slices.ContainsFunc(u.pods.List(secret.Namespace, nil), func(p *corev1.Pod) bool {
		return slices.Contains(node.SecretsOf(p), secret.Name)
	})
}

// trackedSince is the day from which on uses are noted; zero when none are.
func (u unusedTokens) trackedSince(ctx context.Context) (time.Time, error) {
	m, err := client.Get[*corev1.ConfigMap](ctx, u.env.Client, metav1.NamespaceSystem, trackingMap)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	since, err := time.Parse(time.DateOnly, m.Data["since"])
	if err != nil {
		return time.Time{}, nil // the API server will put that right
	}
	return since, nil
}

// step is what is to be done next about a token.
type step int

const (
	waiting step = iota // until uses are noted
	marking
	deletion
)

// nextStep says what is to be done about a token that nobody uses, and when. A day counts until its end. Before uses have been noted for the
// whole period nothing is known of anybody's.
func nextStep(secret *corev1.Secret, trackedSince time.Time, period time.Duration) (step, time.Time, error) {
	if trackedSince.IsZero() {
		return waiting, time.Time{}, nil
	}
	last, next := trackedSince, marking
	if text, ok := secret.Labels[labelLastUsed]; ok {
		used, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return waiting, time.Time{}, fmt.Errorf("label %s: %q is no day such as 2006-01-02", labelLastUsed, text)
		}
		last = later(last, used)
	}
	if invalid, err := time.Parse(time.DateOnly, secret.Labels[labelInvalidSince]); err == nil {
		last, next = later(last, invalid), deletion
	}
	return next, later(last.Add(24*time.Hour+period), secret.CreationTimestamp.Add(period)), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (u unusedTokens) mark(ctx context.Context, secret *corev1.Secret) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": secret.UID, "resourceVersion": secret.ResourceVersion,
		"labels": map[string]string{labelInvalidSince: u.env.Now().UTC().Format(time.DateOnly)},
	}})
	if err != nil {
		return err
	}
	u.env.Logger().Info("the token in a secret is invalid from now on: nobody has used it for long", "component", "controllers", "secret", secret.Namespace+"/"+secret.Name, "used", secret.Labels[labelLastUsed])
	_, err = u.env.Client.Patch(ctx, api.ResourceOf(secret), secret.Namespace, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
