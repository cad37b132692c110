package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

type world struct {
	*clienttest.Memory
	*Service
	now     time.Time
	account *corev1.ServiceAccount
	pod     *corev1.Pod
}

func newWorld(t *testing.T, signer crypto.Signer) *world {
	t.Helper()
	w := &world{
		now:     time.Unix(1_800_000_000, 0),
		account: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "sa-uid"}},
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid"},
			Spec:       corev1.PodSpec{ServiceAccountName: "sa", NodeName: "n1"},
		},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
	w.Memory = clienttest.NewMemory(w.account, w.pod, node)
	s, err := New(context.Background(), Config{
		Keys:   &pki.SigningKeys{Signer: signer, Verifiers: []crypto.PublicKey{signer.Public()}},
		Client: w.Memory, Now: func() time.Time { return w.now }, NewID: func() string { return "the-id" },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Service = s
	return w
}

func p256(t *testing.T) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func podRequest(seconds int64) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "pod-uid"},
	}}
}

func TestTokensOfEveryKeyKindAuthenticateTheirAccount(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, signer := range []crypto.Signer{p256(t), p384, rsaKey} {
		w := newWorld(t, signer)
		made, err := w.Issue(context.Background(), "ns", "sa", podRequest(600))
		if err != nil {
			t.Fatal(err)
		}
		user, accepted, ok, err := w.AuthenticateToken(context.Background(), made.Status.Token, []string{DefaultIssuer, "other"})
		if err != nil || !ok {
			t.Fatalf("%T: %v %v", signer, ok, err)
		}
		if user.Name != "system:serviceaccount:ns:sa" || user.UID != "sa-uid" || !slices.Equal(user.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:ns"}) {
			t.Errorf("user is %+v", user)
		}
		want := map[string]string{
			"authentication.kubernetes.io/pod-name": "pod", "authentication.kubernetes.io/pod-uid": "pod-uid",
			"authentication.kubernetes.io/node-name": "n1", "authentication.kubernetes.io/node-uid": "node-uid",
			"authentication.kubernetes.io/credential-id": "JTI=the-id",
		}
		for k, v := range want {
			if len(user.Extra[k]) != 1 || user.Extra[k][0] != v {
				t.Errorf("extra %s is %v, want %s", k, user.Extra[k], v)
			}
		}
		if !slices.Equal(accepted, []string{DefaultIssuer}) {
			t.Errorf("accepted audiences %v", accepted)
		}
	}
}

func TestATokenNeedsItsTimePodAccountAndAudience(t *testing.T) {
	ctx := context.Background()
	cases := map[string]struct {
		change func(w *world)
		want   string
	}{
		"when it has expired":         {func(w *world) { w.now = w.now.Add(11 * time.Minute) }, "expired"},
		"when the pod is gone":        {func(w *world) { w.Remove(w.pod) }, "pod ns/pod has been deleted"},
		"when the pod is another one": {func(w *world) { w.pod.UID = "new"; w.Put(w.pod) }, "UID"},
		"when the account is gone":    {func(w *world) { w.Remove(w.account) }, "service account ns/sa has been deleted"},
		"a minute after pod's deletion": {func(w *world) {
			w.pod.DeletionTimestamp = &metav1.Time{Time: w.now.Add(-61 * time.Second)}
			w.Put(w.pod)
		}, "deleted"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, p256(t))
			made, err := w.Issue(ctx, "ns", "sa", podRequest(600))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, ok, err := w.AuthenticateToken(ctx, made.Status.Token, w.Audiences); !ok || err != nil {
				t.Fatalf("the fresh token: %v %v", ok, err)
			}
			c.change(w)
			if _, _, ok, err := w.AuthenticateToken(ctx, made.Status.Token, w.Audiences); ok || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ok %v, error %v, want %q", ok, err, c.want)
			}
		})
	}
	w := newWorld(t, p256(t))
	made, err := w.Issue(ctx, "ns", "sa", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}})
	if err != nil {
		t.Fatal(err)
	}
	if made.UID == "" {
		t.Error("the answer does not say which account it is for")
	}
	if _, _, ok, err := w.AuthenticateToken(ctx, made.Status.Token, w.Audiences); ok || err == nil {
		t.Error("a token for another audience was accepted")
	}
}

func TestForgedTokensAreRefused(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, p256(t))
	made, err := w.Issue(ctx, "ns", "sa", podRequest(600))
	if err != nil {
		t.Fatal(err)
	}
	pieces := strings.Split(made.Status.Token, ".")
	encode := base64.RawURLEncoding.EncodeToString
	none := encode([]byte(`{"alg":"none"}`)) + "." + pieces[1] + "."
	payload, _ := base64.RawURLEncoding.DecodeString(pieces[1])
	other := pieces[0] + "." + encode([]byte(strings.Replace(string(payload), `"sa"`, `"root"`, 1))) + "." + pieces[2]
	stranger := newWorld(t, p256(t))
	foreign, err := stranger.Issue(ctx, "ns", "sa", podRequest(600))
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{"alg none": none, "changed claims": other, "another key": foreign.Status.Token} {
		if _, _, ok, err := w.AuthenticateToken(ctx, token, w.Audiences); ok || err == nil {
			t.Errorf("%s: ok %v, error %v", name, ok, err)
		}
	}
	for _, token := range []string{"", "a.b.c", "abcdef.0123456789abcdef", "..", strings.Repeat(".", 5)} {
		if _, _, ok, err := w.AuthenticateToken(ctx, token, w.Audiences); ok || err != nil {
			t.Errorf("%q is not ours, but: ok %v, error %v", token, ok, err)
		}
	}
}

func TestPodTokensForTheAPIServerLiveAYearAndHaveWarnAfter(t *testing.T) {
	w := newWorld(t, p256(t))
	made, err := w.Issue(context.Background(), "ns", "sa", podRequest(3607))
	if err != nil {
		t.Fatal(err)
	}
	if got := made.Status.ExpirationTimestamp.Sub(w.now); got != 3607*time.Second {
		t.Errorf("the status tells %v", got)
	}
	payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(made.Status.Token, ".")[1])
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		t.Fatal(err)
	}
	if c.Expires-c.IssuedAt != 365*24*3600 || c.Private.WarnAfter != w.now.Unix()+3607 {
		t.Errorf("claims are %+v", c)
	}
}

func TestTokenRequestErrors(t *testing.T) {
	cases := map[string]struct {
		change func(r *authenticationv1.TokenRequest)
		want   string
	}{
		"too short":      {func(r *authenticationv1.TokenRequest) { *r.Spec.ExpirationSeconds = 599 }, "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		"too long":       {func(r *authenticationv1.TokenRequest) { *r.Spec.ExpirationSeconds = 1<<32 + 1 }, "may not specify a duration larger than 2^32 seconds"},
		"other pod":      {func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.UID = "x" }, "the UID in the bound object reference (x) does not match the UID in record"},
		"no such pod":    {func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.Name = "x" }, `pods "x" not found`},
		"not bindable":   {func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.Kind = "ConfigMap" }, "cannot bind token to object of type /v1, Kind=ConfigMap"},
		"another's UID":  {func(r *authenticationv1.TokenRequest) { r.UID = "x" }, `Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa": the UID in the token request (x) does not match the UID of the service account (`},
		"another's name": {func(r *authenticationv1.TokenRequest) { r.Name = "x" }, "metadata.name: Invalid value: \"x\": must match the service account name if specified"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, p256(t))
			r := podRequest(600)
			c.change(r)
			_, err := w.Issue(context.Background(), "ns", "sa", r)
			if err == nil || !strings.Contains(err.Error(), c.want) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestMetricsCountRememberedSignatures(t *testing.T) {
	w, stranger := newWorld(t, p256(t)), newWorld(t, p256(t))
	use := func(from *world) {
		made, err := from.Issue(t.Context(), "ns", "sa", podRequest(600))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _, _, _ = w.AuthenticateToken(t.Context(), made.Status.Token, w.Audiences)
		}
	}
	use(w)
	use(stranger)
	_, _, _, _ = w.AuthenticateToken(t.Context(), "of another issuer", w.Audiences)
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if name, ok := strings.CutPrefix(f.GetName(), "authentication_token_cache_"); ok {
				got[name+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	want := map[string]float64{
		"request_total hit": 1, "request_total miss": 3, "fetch_total ok": 1, "fetch_total error": 2, "active_fetch_count in_flight": 0,
		"request_duration_seconds hit": 1, "request_duration_seconds miss": 3,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBootstrapTokens(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	secret := func(change func(d map[string][]byte)) *corev1.Secret {
		d := map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"expiration": []byte(now.Add(time.Hour).Format(time.RFC3339)), "auth-extra-groups": []byte("system:bootstrappers:knarr:node"),
		}
		change(d)
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: SecretTypeBootstrap, Data: d}
	}
	ask := func(s *corev1.Secret) (auth.User, bool, error) {
		b := NewBootstrap(context.Background(), clienttest.NewMemory(s), []string{"api"}, func() time.Time { return now })
		user, _, ok, err := b.AuthenticateToken(context.Background(), "abcdef.0123456789abcdef", []string{"api"})
		return user, ok, err
	}
	user, ok, err := ask(secret(func(map[string][]byte) {}))
	if !ok || err != nil || user.Name != "system:bootstrap:abcdef" || !slices.Equal(user.Groups, []string{"system:bootstrappers", "system:bootstrappers:knarr:node"}) {
		t.Errorf("%+v %v %v", user, ok, err)
	}
	for name, change := range map[string]func(d map[string][]byte){
		"wrong secret":           func(d map[string][]byte) { d["token-secret"] = []byte("0123456789abcdee") },
		"expired":                func(d map[string][]byte) { d["expiration"] = []byte(now.Format(time.RFC3339)) },
		"expiration unreadable":  func(d map[string][]byte) { d["expiration"] = []byte("soon") },
		"not for authentication": func(d map[string][]byte) { delete(d, "usage-bootstrap-authentication") },
		"group after a space": func(d map[string][]byte) {
			d["auth-extra-groups"] = []byte("system:bootstrappers:a, system:bootstrappers:b")
		},
		"a comma too many":  func(d map[string][]byte) { d["auth-extra-groups"] = []byte("system:bootstrappers:a,") },
		"group not allowed": func(d map[string][]byte) { d["auth-extra-groups"] = []byte("system:masters") },
	} {
		if _, ok, err := ask(secret(change)); ok || err != nil {
			t.Errorf("%s: ok %v, error %v", name, ok, err)
		}
	}
}

func TestDiscoveryDocumentsVerifyATokenWithoutTheServer(t *testing.T) {
	w := newWorld(t, p256(t))
	r := httptest.NewRecorder()
	w.ServeConfiguration(r, nil)
	var configuration struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(r.Body.Bytes(), &configuration); err != nil || configuration.Issuer != DefaultIssuer || configuration.JWKSURI != DefaultIssuer+"/openid/v1/jwks" {
		t.Errorf("%+v %v", configuration, err)
	}
	r = httptest.NewRecorder()
	w.ServeKeys(r, nil)
	var keys struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(r.Body.Bytes(), &keys); err != nil || len(keys.Keys) != 1 || keys.Keys[0]["crv"] != "P-256" || len(keys.Keys[0]["x"]) != 43 {
		t.Errorf("%s %v", r.Body, err)
	}
}

func TestSeveralIssuersAndALongestLifetime(t *testing.T) {
	w := newWorld(t, p256(t))
	config := w.Config
	config.Audiences, config.Issuer, config.AcceptedIssuers, config.MaxExpiration, config.JWKSURI = nil, "https://new", []string{"https://old"}, 2*time.Hour, ""
	s, err := New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	config.Issuer, config.AcceptedIssuers = "https://old", nil
	old, err := New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Issue(context.Background(), "ns", "sa", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(86400))}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"https://new", "https://old"}; !slices.Equal(made.Spec.Audiences, want) || !slices.Equal(s.Audiences, want) {
		t.Errorf("for %q, the server is %q", made.Spec.Audiences, s.Audiences)
	}
	if *made.Spec.ExpirationSeconds != 7200 || !made.Status.ExpirationTimestamp.Time.Equal(w.now.Add(2*time.Hour)) {
		t.Errorf("%d seconds, until %v", *made.Spec.ExpirationSeconds, made.Status.ExpirationTimestamp)
	}
	before, err := old.Issue(context.Background(), "ns", "sa", &authenticationv1.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := s.AuthenticateToken(context.Background(), before.Status.Token, s.Audiences); !ok || err != nil {
		t.Errorf("a token of the issuer before: %v, %v", ok, err)
	}
	if _, _, ok, _ := old.AuthenticateToken(context.Background(), made.Status.Token, s.Audiences); ok {
		t.Error("a token of an issuer that is not accepted is")
	}
}

func FuzzVerifyNeverPanicsOrAccepts(f *testing.F) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	s, err := New(context.Background(), Config{Keys: &pki.SigningKeys{Signer: k, Verifiers: []crypto.PublicKey{k.Public()}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJrdWJlcm5ldGVzL3NlcnZpY2VhY2NvdW50In0.AA")
	f.Fuzz(func(t *testing.T, token string) {
		if c, err := s.verify(t.Context(), token); c != nil || (c == nil && err == nil) != (err == nil) {
			t.Errorf("%q: %v %v", token, c, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	k, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "u"}}
	s, _ := New(context.Background(), Config{Keys: &pki.SigningKeys{Signer: k, Verifiers: []crypto.PublicKey{k.Public()}}, Client: clienttest.NewMemory(account)})
	made, err := s.Issue(context.Background(), "ns", "sa", &authenticationv1.TokenRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, ok, err := s.AuthenticateToken(context.Background(), made.Status.Token, s.Audiences); !ok || err != nil {
			b.Fatal(err)
		}
	}
}
