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

// UnusedTokens removes unused token Secrets that clusters before v1.24 generated for every service
// account (KEP-2799). It marks a token as invalid after the period without use, and deletes it
// after another period. It keeps Secrets created by users, and Secrets that a pod uses.
var UnusedTokens = controller.Starter{Name: "legacy-serviceaccount-token-cleaner-controller", Account: "legacy-service-account-token-cleaner", Run: runUnusedTokens}

// The API server records the last use in labelLastUsed, and in the ConfigMap trackingMap the day on
// which it began to record. Both labels hold a date.
const (
	labelLastUsed     = "kubernetes.io/legacy-token-last-used"
	labelInvalidSince = "kubernetes.io/legacy-token-invalid-since"
	trackingMap       = "kube-apiserver-legacy-service-account-token-tracking"
)

// recheckInterval is the interval at which a Secret that may not be removed yet is checked again,
// because a pod uses it or because uses are not recorded.
const recheckInterval = 24 * time.Hour

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
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "legacy-serviceaccount-token-cleaner-controller",
		Inputs: []controller.Input{
			controller.On(secrets, func(e client.TypedEvent[*corev1.Secret]) []controller.Key {
				if e.Type == client.Modified && e.Old.Labels[labelInvalidSince] != e.Object.Labels[labelInvalidSince] {
					// Do not react to a change of the mark: a user who removes it needs time to use
					// the token before the next check.
					return nil
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
		Resync:    recheckInterval,
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
	case step == waiting, u.usedByPod(secret):
		return controller.Result{After: recheckInterval}, nil
	case rest > 0:
		return controller.Result{After: rest}, nil
	case step == deletion:
		u.env.Logger().Info("deleting the unused token in a secret", "component", "controllers", "secret", key.String(), "since", secret.Labels[labelInvalidSince])
		err = client.Delete[*corev1.Secret](ctx, u.env.Client, key.Namespace, key.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}})
	default:
		err, done.After = u.mark(ctx, secret), recheckInterval
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // the change queues the Secret again, or the next resync does
	}
	return done, err
}

// generated reports whether the cluster generated the Secret. Only a generated Secret is listed in
// its service account.
func (u unusedTokens) generated(secret *corev1.Secret) bool {
	account, ok := u.accounts.Get(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey])
	return ok && secret.Annotations[corev1.ServiceAccountUIDKey] == string(account.UID) &&
		slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name })
}

// usedByPod reports whether a pod of the namespace uses the Secret in any way.
func (u unusedTokens) usedByPod(secret *corev1.Secret) bool {
	return slices.ContainsFunc(u.pods.List(secret.Namespace, nil), func(p *corev1.Pod) bool {
		return slices.Contains(node.SecretsOf(p), secret.Name)
	})
}

// trackedSince returns the day since which uses are recorded; zero if they are not recorded.
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
		return time.Time{}, nil // the API server corrects an unreadable date
	}
	return since, nil
}

// step is the next step for an unused token.
type step int

const (
	waiting step = iota // uses are not recorded yet
	marking
	deletion
)

// nextStep returns the next step for a token, and when it is due. Days count until their end. Uses
// must have been recorded for the whole period before a token counts as unused.
func nextStep(secret *corev1.Secret, trackedSince time.Time, period time.Duration) (step, time.Time, error) {
	if trackedSince.IsZero() {
		return waiting, time.Time{}, nil
	}
	last, next := trackedSince, marking
	if text, ok := secret.Labels[labelLastUsed]; ok {
		used, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return waiting, time.Time{}, fmt.Errorf("label %s: %q is not a date of the form 2006-01-02", labelLastUsed, text)
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
	u.env.Logger().Info("marking the unused token in a secret as invalid", "component", "controllers", "secret", secret.Namespace+"/"+secret.Name, "used", secret.Labels[labelLastUsed])
	_, err = u.env.Client.Patch(ctx, api.ResourceOf(secret), secret.Namespace, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
