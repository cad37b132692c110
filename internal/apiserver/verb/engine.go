package verb

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/usage"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cache"
)

// Engine has the parts of a server that its operations share.
type Engine struct {
	Kinds  *registry.Kinds
	Access Access
	// Meter measures nodes and pods.
	Meter *usage.Meter
	// Components returns the ComponentStatuses whose names are wanted.
	Components func(ctx context.Context, wanted func(name string) bool) []runtime.Object
	// Past has objects as they were; nil if nothing is recorded.
	Past Past
}

// Past returns the objects of a kind as they were at a time. With a namespace or a name, only
// objects of that namespace and name need be as they were. warn is told what is missing.
type Past interface {
	Snapshot(ctx context.Context, r *registry.Registry, namespace, name string, at time.Time, warn func(string)) (*cache.Snapshot, error)
}

// Access authorizes operations, and has the admission plugins that they run.
type Access interface {
	Authorizer() auth.Authorizer
	Admission() admission.Chain
	Reviews() Reviews
}

// Reviews answer objects that are posted and not stored: token requests, token reviews and rules
// reviews.
type Reviews struct {
	Issuer    TokenIssuer
	Tokens    auth.TokenAuthenticator
	Audiences []string // the server's own
	Rules     RulesReviewer
}

// TokenIssuer issues service account tokens.
type TokenIssuer interface {
	Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// RulesReviewer fills in the rules of a user in a namespace.
type RulesReviewer interface {
	ReviewRules(user auth.User, review *authorizationv1.SelfSubjectRulesReview) error
}

// InternalOperation returns an operation of the server itself on a built-in kind.
func (en *Engine) InternalOperation(e *registry.Endpoint, namespace, name string) *Operation {
	return &Operation{
		Engine: en, Endpoint: e, User: auth.Component(auth.UserAPIServer, auth.GroupMasters), Verb: "update",
		Namespace: namespace, Name: name, GVK: e.GVK, Warn: func(string) {},
	}
}

// Authorize returns nil if a is allowed, else the Forbidden error for the user.
func (en *Engine) Authorize(ctx context.Context, a auth.Attributes) error {
	return auth.Check(ctx, en.Access.Authorizer(), a)
}
