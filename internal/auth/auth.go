// Package auth identifies the user of a request (authentication) and decides what the user may do
// (authorization). Its subpackages hold the single methods, and the cluster's keys and
// certificates.
//
// Words. A User is an authenticated identity. An Authenticator finds the user of a request.
// Attributes describe what a request wants to do. An Authorizer allows it, denies it, or has no
// opinion.
package auth

import (
	"context"
	"net/http"
)

// User is the authenticated identity of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
	// Remarks holds warnings about the user's credentials; nil means none.
	Remarks *Remarks
}

// Well-known identities of upstream's components.
const (
	GroupMasters         = "system:masters"
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
	GroupNodes           = "system:nodes"
	GroupServiceAccounts = "system:serviceaccounts"
	UserAnonymous        = "system:anonymous"
	UserAPIServer        = "system:apiserver"
	UserScheduler        = "system:kube-scheduler"
	UserControllers      = "system:kube-controller-manager"
	UserProxy            = "system:kube-proxy"
)

// Component returns the user of a component in this process, in the given groups and
// system:authenticated.
func Component(name string, groups ...string) User {
	return User{Name: name, Groups: append(groups, GroupAuthenticated)}
}

// Authenticator finds the user of a request. ok is false if it has no opinion. An error means that
// the request has bad credentials (401).
type Authenticator interface {
	Authenticate(r *http.Request) (user User, ok bool, err error)
}

// Attributes describes a request to be authorized (as in authorization.k8s.io SubjectAccessReview).
type Attributes struct {
	User        User
	Verb        string
	Namespace   string
	Group       string
	Version     string
	Resource    string
	Subresource string
	Name        string
	// Path is set, and the resource fields are empty, for a non-resource request.
	Path string
	// FieldSelector and LabelSelector are the request's raw selectors.
	FieldSelector, LabelSelector string
}

// Decision is an authorizer's answer.
type Decision int

const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides about requests. The reason is for the Forbidden message and the audit log.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (d Decision, reason string, err error)
}

type userKey struct{}

// WithUser returns a context with the request's user.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns the request's user; ok is false outside of a request.
func UserFrom(ctx context.Context) (u User, ok bool) {
	u, ok = ctx.Value(userKey{}).(User)
	return u, ok
}
