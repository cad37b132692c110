package token

import (
	"context"
	"crypto"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
)

func TestLegacyTokenEndsWithItsSecret(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, p256(t))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa-token"}, Type: corev1.SecretTypeServiceAccountToken}
	text, err := w.LegacyToken(w.account, secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := w.AuthenticateToken(ctx, text, w.Audiences); ok || err == nil {
		t.Error("a token without its Secret was accepted")
	}
	secret.Data = map[string][]byte{"token": []byte(text)}
	w.Put(secret)
	user, _, ok, err := w.AuthenticateToken(ctx, text, w.Audiences)
	if !ok || err != nil || user.Name != auth.ServiceAccountName("ns", "sa") {
		t.Errorf("%v %v %v", user, ok, err)
	}
	used := func() string {
		secret, err := client.Get[*corev1.Secret](ctx, w.Memory, "ns", "sa-token")
		if err != nil {
			t.Fatal(err)
		}
		return secret.Labels["kubernetes.io/legacy-token-last-used"]
	}
	if day := w.now.UTC().Format(time.DateOnly); used() != day {
		t.Errorf("the Secret says that it was used on %q, wanted %q", used(), day)
	}
	w.now = w.now.Add(24 * time.Hour)
	if _, _, ok, err := w.AuthenticateToken(ctx, text, w.Audiences); !ok || err != nil || used() != w.now.UTC().Format(time.DateOnly) {
		t.Errorf("on the next day: %v %v, used on %q", ok, err, used())
	}
}

// readOnly fails and counts writes.
type readOnly struct {
	client.Interface
	writes int
}

func (r *readOnly) Patch(context.Context, schema.GroupVersionResource, string, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (runtime.Object, error) {
	r.writes++
	return nil, errors.New("nothing is written here")
}

func TestAFailedRecordOfATokensUseIsNotRetriedAtOnce(t *testing.T) {
	w := newWorld(t, p256(t))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa-token", UID: "u"}, Type: corev1.SecretTypeServiceAccountToken}
	text, err := w.LegacyToken(w.account, secret)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{"token": []byte(text)}
	w.Put(secret)
	under := &readOnly{Interface: w.Memory}
	w.Client = under
	for _, tc := range []struct {
		after  time.Duration
		writes int
	}{{0, 1}, {time.Second, 1}, {recordRetryAfter, 2}} {
		w.now = w.now.Add(tc.after)
		if _, _, ok, err := w.AuthenticateToken(t.Context(), text, w.Audiences); !ok || err != nil || under.writes != tc.writes {
			t.Errorf("after %s: %v %v, %d writes instead of %d", tc.after, ok, err, under.writes, tc.writes)
		}
	}
}

func TestTokenReplacedByARotationIsAcceptedWhileItsKeyIs(t *testing.T) {
	first, second := p256(t), p256(t)
	w := newWorld(t, first)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa-token"}, Type: corev1.SecretTypeServiceAccountToken}
	sign := func() string {
		t.Helper()
		text, err := w.LegacyToken(w.account, secret)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	old, other := sign(), sign()
	if err := w.Use(&pki.SigningKeys{Signer: second, Verifiers: []crypto.PublicKey{second.Public(), first.Public()}}); err != nil {
		t.Fatal(err)
	}
	secret.Data = map[string][]byte{"token": []byte(sign())}
	secret.Annotations = map[string]string{auth.AnnotationReplacedToken: auth.ReplacedToken([]byte(old))}
	w.Put(secret)
	accepted := func(text string) bool {
		_, _, ok, err := w.AuthenticateToken(t.Context(), text, w.Audiences)
		return ok && err == nil
	}
	if !accepted(old) {
		t.Error("the replaced token is refused")
	}
	if accepted(other) {
		t.Error("a token that was in no Secret is accepted")
	}
	if err := w.Use(&pki.SigningKeys{Signer: second, Verifiers: []crypto.PublicKey{second.Public()}}); err != nil {
		t.Fatal(err)
	}
	if accepted(old) {
		t.Error("the replaced token is accepted after its key was dropped")
	}
}

func TestStaleAndLegacyTokensCauseWarnings(t *testing.T) {
	const warning = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens."
	ask := func(w *world, text string) (*auth.Remarks, error) {
		user, _, _, err := w.AuthenticateToken(t.Context(), text, w.Audiences)
		return user.Remarks, err
	}
	inSecret := func(generated bool, labels map[string]string) (*world, string) {
		w := newWorld(t, p256(t))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Labels: labels}, Type: corev1.SecretTypeServiceAccountToken}
		if generated {
			w.account.Secrets = []corev1.ObjectReference{{Name: "s"}}
			w.Put(w.account)
		}
		text, err := w.LegacyToken(w.account, secret)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data = map[string][]byte{"token": []byte(text)}
		w.Put(secret)
		return w, text
	}
	w, text := inSecret(true, nil)
	if r, err := ask(w, text); err != nil || !slices.Equal(r.Warnings, []string{warning}) ||
		r.Annotations["authentication.k8s.io/legacy-token"] != "system:serviceaccount:ns:sa" || r.Annotations["authentication.k8s.io/legacy-token-autogenerated-secret"] != "s" {
		t.Errorf("of a generated one: %+v %v", r, err)
	}
	w, text = inSecret(false, nil)
	if r, err := ask(w, text); err != nil || len(r.Warnings) > 0 || r.Annotations["authentication.k8s.io/legacy-token-manual-secret"] != "s" {
		t.Errorf("of one made by hand: %+v %v", r, err)
	}
	w, text = inSecret(true, map[string]string{"kubernetes.io/legacy-token-invalid-since": "2026-11-22"})
	if _, err := ask(w, text); err == nil || err.Error() != "the token in secret ns/s for service account ns/sa has been marked invalid. "+
		"Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token" {
		t.Errorf("of an invalid one: %v", err)
	}
	if secret, err := client.Get[*corev1.Secret](t.Context(), w.Memory, "ns", "s"); err != nil || secret.Labels["kubernetes.io/legacy-token-last-used"] != w.now.UTC().Format(time.DateOnly) {
		t.Errorf("the use of an invalid one is not noted: %v %v", secret.Labels, err)
	}
	w = newWorld(t, p256(t))
	made, err := w.Issue(t.Context(), "ns", "sa", podRequest(podExpiration))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ask(w, made.Status.Token); r != nil || err != nil {
		t.Errorf("of a fresh one: %+v %v", r, err)
	}
	w.now = w.now.Add(podExpiration*time.Second + 500*time.Second)
	if r, err := ask(w, made.Status.Token); err != nil || r == nil || r.Annotations["authentication.k8s.io/stale-token"] != "subject: system:serviceaccount:ns:sa, seconds after warning threshold: 500" {
		t.Errorf("of a stale one: %+v %v", r, err)
	}
}
