package server

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

// How long the API server's answers are believed, as upstream's kubelet.
const (
	tokenTTL   = 2 * time.Minute
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	maxAnswers = 4096
)

// Delegated asks the API server who a bearer token is from, and what users may do. Client certificates are judged here. Safe for
// concurrent use.
type Delegated struct {
	Client client.Interface
	// Certificates judges client certificates; nil accepts none.
	Certificates auth.Authenticator
	Now          func() time.Time

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
func (d *Delegated) Authenticate(r *http.Request) (auth.User, bool, error) {
	if d.Certificates != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		user, ok, err := d.Certificates.Authenticate(r)
		return auth.WithAuthenticatedGroup(user), ok, err
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return auth.User{}, false, nil // upstream's kubelet lets nobody in anonymously, either
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
	d.tokens[key] = tokenAnswer{user, d.Now().Add(tokenTTL)}
	return user, true, nil
}

// Authorize implements auth.Authorizer.
func (d *Delegated) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
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
	out := answer{decision: auth.NoOpinion, reason: review.Status.Reason, until: d.Now().Add(deniedTTL)}
	if review.Status.Allowed {
		out.decision, out.until = auth.Allow, d.Now().Add(allowedTTL)
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
