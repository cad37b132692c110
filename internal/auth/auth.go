// Package auth decides who a request is from (authentication) and what they may do (authorization), and owns the
// cluster's keys and certificates.
package auth

import (
	"context"
	"net/http"
)

// User is who a request is from.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
	// Remarks is nil when there is nothing to be said of how the user came in.
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

// Component is the user of a component in this process, in the given groups and system:authenticated.
func Component(name string, groups ...string) User {
	return User{Name: name, Groups: append(groups, GroupAuthenticated)}
}

// Authenticator finds out who a request is from. ok is false when it has no opinion; an error means that
// credentials were given and are bad (401).
type Authenticator interface {
	Authenticate(r *http.Request) (user User, ok bool, err error)
}

// Attributes is what is to be authorized (as in authorization.k8s.io SubjectAccessReview).
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

// Authorizer decides. The reason is for the Forbidden message and the audit log.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (d Decision, reason string, err error)
}

type userKey struct{}

// WithUser and UserFrom carry the request's user in its context.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns the request's user; ok is false outside of a request.
func UserFrom(ctx context.Context) (u User, ok bool) {
	u, ok = ctx.Value(userKey{}).(User)
	return u, ok
}
