package ui

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth/session"
	"github.com/knarr-project/knarr/knarrtest"
)

const clientID, clientSecret = "the-page", "not so secret"

// issuer is a small OpenID Connect issuer that logs jane in without asking.
type issuer struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey

	mu    sync.Mutex // guards the codes
	codes map[string]url.Values
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		point, _ := key.PublicKey.Bytes() // 4, x, y
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256", "use": "sig", "x": encode(point[1:33]), "y": encode(point[33:])}}})
	})
	mux.HandleFunc("/authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != clientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" || q.Get("state") == "" {
		i.t.Errorf("the page asks for %v", q)
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = q
	i.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}.Encode(), http.StatusFound)
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	code := r.PostFormValue("code")
	i.mu.Lock()
	asked := i.codes[code]
	delete(i.codes, code)
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	user, password, _ := r.BasicAuth()
	if user, _ = url.QueryUnescape(user); asked == nil || encode(sum[:]) != asked.Get("code_challenge") || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") || user != clientID || password != url.QueryEscape(clientSecret) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims, _ := json.Marshal(map[string]any{"iss": i.URL, "sub": "jane", "groups": []string{"crew"}, "aud": clientID, "nonce": asked.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()})
	signed := encode([]byte(`{"alg":"ES256","kid":"1","typ":"JWT"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	a, b, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	if err != nil {
		i.t.Error(err)
		return
	}
	signature := append(a.FillBytes(make([]byte, 32)), b.FillBytes(make([]byte, 32))...)
	_ = json.NewEncoder(w).Encode(map[string]string{"id_token": signed + "." + encode(signature), "token_type": "Bearer", "access_token": "x"})
}

func TestUsersLogInAtAnIssuer(t *testing.T) {
	i := startIssuer(t)
	folder := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := knarrtest.Start(t, knarrtest.WithFlags("--oidc-issuer-url="+i.URL, "--oidc-client-id="+clientID, "--oidc-signing-algs=ES256", "--oidc-username-prefix=-", "--oidc-groups-claim=groups",
		"--oidc-ca-file="+write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})),
		"--ui-oidc-client-secret-file="+write("secret", []byte(clientSecret+"\n"))))
	b := openBrowser(t)
	b.do(chromedp.Navigate(c.Config().Host + "/ui/"))
	b.until("the issuer", `document.querySelector('.issuers a')`)
	eval[any](b, `document.querySelector('.issuers a').click()`)
	b.until("the user", `document.querySelector('.user')?.textContent === 'jane' && document.querySelector('.user').title.includes('crew')`)
	if at := eval[string](b, "location.href"); at != c.Config().Host+"/ui/#/overview" {
		t.Errorf("the address is %s", at)
	}
	if kept := eval[string](b, `JSON.stringify([document.cookie, Object.keys(localStorage), Object.keys(sessionStorage)])`); kept != `["",[],[]]` {
		t.Errorf("the browser keeps %s", kept)
	}
	theCookie(b)
	// A second log-in is refused by the issuer: the page shows why.
	b.do(chromedp.Navigate(c.Config().Host + "/ui/login/return?code=x&state=y"))
	b.shows("log-in is unknown")
}

func TestThePageCanBeTurnedOff(t *testing.T) {
	c := knarrtest.Start(t, knarrtest.WithFlags("--ui=off"))
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for path, method := range map[string]string{"/ui/": "GET", "/ui/js/main.js": "GET", "/ui/login/issuers": "GET", session.LinksPath: "POST"} {
		request, err := http.NewRequestWithContext(t.Context(), method, c.Config().Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}
