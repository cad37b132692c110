package webhook

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/memo"
)

// Tokens authenticates bearer tokens by a webhook.
type Tokens struct {
	server  *server
	keep    time.Duration
	now     func() time.Time
	answers memo.Memo[[sha256.Size]byte, known]
}

type known struct {
	user     auth.User
	accepted []string
	until    time.Time
}

// NewTokens uses the server of a kubeconfig file. dial connects to it; nil connects directly. Valid
// tokens are remembered for keep.
func NewTokens(kubeconfig string, keep time.Duration, dial egress.Dial) (*Tokens, error) {
	s, err := newServer(kubeconfig, 30*time.Second, dial)
	if err != nil {
		return nil, fmt.Errorf("token webhook %w", err)
	}
	t := &Tokens{server: s, keep: keep, now: time.Now}
	t.answers.Size = rememberedAnswers
	return t, nil
}

// AuthenticateToken implements auth.TokenAuthenticator.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string, audiences []string) (auth.User, []string, bool, error) {
	key := sha256.Sum256([]byte(token + "\x00" + strings.Join(audiences, "\x00")))
	if k, ok := t.answers.Get(key); ok && t.now().Before(k.until) {
		return k.user, k.accepted, true, nil
	}
	review := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{Kind: "TokenReview", APIVersion: authenticationv1.SchemeGroupVersion.String()},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
	if err := t.server.ask(ctx, review, func(error, time.Duration) {}); err != nil {
		return auth.User{}, nil, false, fmt.Errorf("token webhook: %w", err)
	}
	if !review.Status.Authenticated {
		if review.Status.Error != "" {
			return auth.User{}, nil, false, errors.New(review.Status.Error)
		}
		return auth.User{}, nil, false, nil
	}
	accepted := accept(audiences, review.Status.Audiences)
	if len(audiences) > 0 && len(accepted) == 0 {
		return auth.User{}, nil, false, nil // a valid token, but not meant for this server
	}
	u := review.Status.User
	user := auth.User{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if user.Extra == nil {
			user.Extra = map[string][]string{}
		}
		user.Extra[k] = v
	}
	if t.keep > 0 {
		t.answers.Put(key, known{user, accepted, t.now().Add(t.keep)})
	}
	return user, accepted, true, nil
}

// accept returns the accepted audiences. A webhook that returns none does not support audiences,
// and its tokens are meant for the API server.
func accept(asked, answered []string) []string {
	if len(answered) == 0 {
		return asked
	}
	var out []string
	for _, a := range asked {
		for _, b := range answered {
			if a == b {
				out = append(out, a)
			}
		}
	}
	return out
}
