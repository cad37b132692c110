package token

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/knarr-project/knarr/internal/auth/signer"
	"github.com/knarr-project/knarr/internal/auth/signertest"
)

func TestTokensOfAnExternalSigner(t *testing.T) {
	server := signertest.Start(t)
	external, err := signer.Connect(t.Context(), server.Socket, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer external.Close()
	w := newWorld(t, p256(t))
	config := w.Config
	config.Keys, config.External, config.MaxExpiration = nil, external, external.MaxExpiration
	if w.Service, err = New(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	made, err := w.Issue(t.Context(), "ns", "sa", podRequest(podExpiration))
	if err != nil {
		t.Fatal(err)
	}
	token := made.Status.Token
	check := func(when string, want bool) {
		t.Helper()
		if user, _, ok, err := w.AuthenticateToken(t.Context(), token, []string{DefaultIssuer}); ok != want || (err == nil) != want || want && user.Name != "system:serviceaccount:ns:sa" {
			t.Errorf("%s: %v %v %v", when, user, ok, err)
		}
	}
	check("as issued", true)
	if c, err := w.verify(t.Context(), token); err != nil || c.Expires-c.IssuedAt != 86400 {
		t.Errorf("a pod's token is to live as long as the signer allows: %v, %v", c, err)
	}

	keys := func(ids ...string) {
		answer := &externaljwt.FetchKeysResponse{DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 3600}
		for _, id := range ids {
			answer.Keys = append(answer.Keys, server.Key(id))
		}
		server.Change(func(a *signertest.Answers) { a.Keys = answer })
	}
	keys("k2")
	if err := external.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("when its key does not count any more", false)
	keys("k1", "k2")
	check("when its key is one that was not known yet", true)

	server.Change(func(a *signertest.Answers) {
		a.Signature = func(string) []byte { return []byte("forged") }
	})
	forged, err := w.Issue(t.Context(), "ns", "sa", podRequest(600))
	if err != nil {
		t.Fatal(err)
	}
	token = forged.Status.Token
	check("with a bad signature", false)

	keys("k1", "k2")
	server.Change(func(a *signertest.Answers) { a.Keys.Keys[1].ExcludeFromOidcDiscovery = true })
	if err := external.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.now = time.Now()
	shown := httptest.NewRecorder()
	w.ServeKeys(shown, nil)
	if body := shown.Body.String(); !strings.Contains(body, `"kid":"k1"`) || strings.Contains(body, `"kid":"k2"`) {
		t.Errorf("verifiers get %s", body)
	}
}
