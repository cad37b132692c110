package apiserver

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/usage"
	"github.com/knarr-project/knarr/internal/auth"
)

// engine is what all operations of one server have in common.
type engine struct {
	kinds  *endpoints
	access operationAccess
	// meter measures nodes and pods.
	meter *usage.Meter
	// components gives the ComponentStatuses whose names are wanted.
	components func(ctx context.Context, wanted func(name string) bool) []runtime.Object
}

// operationAccess is who may do what, as operations ask for it.
type operationAccess interface {
	Authorizer() auth.Authorizer
	Admission() admission.Chain
	Reviews() reviews
}

// reviews answer what is posted to be answered, not kept: token requests, token reviews, rules reviews.
type reviews struct {
	issuer    TokenIssuer
	tokens    auth.TokenAuthenticator
	audiences []string // the server's own
	rules     RulesReviewer
}

// TokenIssuer makes service account tokens.
type TokenIssuer interface {
	Issue(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// RulesReviewer fills in what a user may do in a namespace.
type RulesReviewer interface {
	ReviewRules(user auth.User, review *authorizationv1.SelfSubjectRulesReview) error
}

// internal is an operation of the server itself on one of its own kinds.
func (en *engine) internal(e *endpoint, namespace, name string) *operation {
	return &operation{
		engine: en, endpoint: e, user: auth.Component(auth.UserAPIServer, auth.GroupMasters), verb: "update",
		namespace: namespace, name: name, gvk: e.gvk, warn: func(string) {},
	}
}

// authorize returns the Forbidden error that a user sees when the authorizer refuses.
func (en *engine) authorize(ctx context.Context, a auth.Attributes) error {
	return auth.Check(ctx, en.access.Authorizer(), a)
}
