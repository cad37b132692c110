// Package rbac decides by roles and bindings (rbac.authorization.k8s.io). It also holds the roles
// that every cluster starts with, and keeps users from granting more than they have.
//
// The Authorizer has one index besides the API objects: from a subject to the bindings that name
// it. A decision visits the bindings of the user and of its groups, and matches the rules of their
// roles in place.
//
// Names and rules of the bootstrap roles are upstream's ("Using RBAC Authorization", default
// roles), because users' own bindings refer to them. Bootstrap creates missing roles and adds
// missing rules while the cluster already serves. Until that is done, an empty cluster is
// authorized by the bootstrap roles in memory.
//
// In: Views of roles and bindings, attributes of requests. Out: decisions, and writes of the
// bootstrap policy.
package rbac
