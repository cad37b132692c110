package verb

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/usage"
	"github.com/knarr-project/knarr/internal/auth"
)

// Engine is what all operations of one server have in common.
type Engine struct {
	Kinds  *registry.Kinds
	Access Access
	// Meter measures nodes and pods.
	Meter *usage.Meter
	// Components gives the ComponentStatuses whose names are wanted.
	Components func(ctx context.Context, wanted func(name string) bool) []runtime.Object
}

// Access is who may do what, as operations ask for it.
type Access interface {
	Authorizer() auth.Authorizer
	Admission() admission.Chain
	Reviews() Reviews
}

// Reviews answer what is posted to be answered, not kept: token requests, token reviews, rules reviews.
type Reviews struct {
	Issuer    TokenIssuer
	Tokens    auth.TokenAuthenticator
	Audiences []string // the server's own
	Rules     RulesReviewer
}

// TokenIssuer makes service account tokens.
type TokenIssuer interface {
	Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// RulesReviewer fills in what a user may do in a namespace.
type RulesReviewer interface {
	ReviewRules(user auth.User, review *authorizationv1.SelfSubjectRulesReview) error
}

// InternalOperation is an operation of the server itself on one of its own kinds.
func (en *Engine) InternalOperation(e *registry.Endpoint, namespace, name string) *Operation {
	return &Operation{
		Engine: en, Endpoint: e, User: auth.Component(auth.UserAPIServer, auth.GroupMasters), Verb: "update",
		Namespace: namespace, Name: name, GVK: e.GVK, Warn: func(string) {},
	}
}

// Authorize returns the Forbidden error that a user sees when the authorizer refuses.
func (en *Engine) Authorize(ctx context.Context, a auth.Attributes) error {
	return auth.Check(ctx, en.Access.Authorizer(), a)
}
