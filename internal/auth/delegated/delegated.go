// Package delegated authenticates and authorizes the clients of a component that serves requests
// itself, such as the kubelet. It asks the API server (TokenReview, SubjectAccessReview) and
// remembers the answers. It verifies client certificates itself.
package delegated

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

const maxAnswers = 4096

// TTL is how long answers of the API server are remembered.
type TTL struct{ Token, Allowed, Denied time.Duration }

// The times of upstream's kubelet and of upstream's other components.
var (
	Kubelet   = TTL{2 * time.Minute, 5 * time.Minute, 30 * time.Second}
	Component = TTL{10 * time.Second, 10 * time.Second, 10 * time.Second}
)

// Auth authenticates and authorizes by the API server. Safe for concurrent use.
type Auth struct {
	Client client.Interface
	// Certificates verifies client certificates; nil accepts none.
	Certificates auth.Authenticator
	Now          func() time.Time
	TTL          TTL
	// NoTokens means that tokens are not accepted. Anonymous accepts requests without an identity,
	// as system:anonymous.
	NoTokens, Anonymous bool

	mu      sync.Mutex
	tokens  map[[sha256.Size]byte]tokenAnswer
	answers map[string]answer
}

type tokenAnswer struct {
	user  auth.User
	until time.Time
}

type answer struct {
	decision auth.Decision
	reason   string
	until    time.Time
}

// Authenticate implements auth.Authenticator.
func (d *Auth) Authenticate(r *http.Request) (auth.User, bool, error) {
	if d.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		user, ok, err := d.Certificates.Authenticate(r)
		return auth.WithAuthenticatedGroup(user), ok, err
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || d.NoTokens {
		if d.Anonymous {
			return auth.Anonymous(), true, nil
		}
		return auth.User{}, false, nil
	}
	key := sha256.Sum256([]byte(token))
	d.mu.Lock()
	known, ok := d.tokens[key]
	d.mu.Unlock()
	if ok && d.Now().Before(known.until) {
		return known.user, true, nil
	}
	review, err := client.Create(r.Context(), d.Client, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err != nil {
		return auth.User{}, false, err
	}
	if !review.Status.Authenticated {
		return auth.User{}, false, errors.New("the API server does not know the token: " + review.Status.Error)
	}
	u := review.Status.User
	user := auth.User{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string][]string{}}
	for k, v := range u.Extra {
		user.Extra[k] = v
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tokens == nil || len(d.tokens) > maxAnswers {
		d.tokens = map[[sha256.Size]byte]tokenAnswer{}
	}
	d.tokens[key] = tokenAnswer{user, d.Now().Add(d.TTL.Token)}
	return user, true, nil
}

// Authorize implements auth.Authorizer.
func (d *Auth) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
	key := strings.Join([]string{a.User.Name, a.User.UID, strings.Join(a.User.Groups, ","), a.Verb, a.Resource, a.Subresource, a.Name, a.Path}, "\x00")
	d.mu.Lock()
	known, ok := d.answers[key]
	d.mu.Unlock()
	if ok && d.Now().Before(known.until) {
		return known.decision, known.reason, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: a.User.Name, UID: a.User.UID, Groups: a.User.Groups}}
	if len(a.User.Extra) > 0 {
		review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range a.User.Extra {
			review.Spec.Extra[k] = v
		}
	}
	if a.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Namespace: a.Namespace, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
		}
	}
	review, err := client.Create(ctx, d.Client, review)
	if err != nil {
		return auth.NoOpinion, "", err
	}
	out := answer{decision: auth.NoOpinion, reason: review.Status.Reason, until: d.Now().Add(d.TTL.Denied)}
	if review.Status.Allowed {
		out.decision, out.until = auth.Allow, d.Now().Add(d.TTL.Allowed)
	} else if review.Status.Denied {
		out.decision = auth.Deny
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answers == nil || len(d.answers) > maxAnswers {
		d.answers = map[string]answer{}
	}
	d.answers[key] = out
	return out.decision, out.reason, nil
}
