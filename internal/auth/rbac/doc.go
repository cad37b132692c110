// Package rbac decides by roles and bindings (rbac.authorization.k8s.io), holds the roles that every cluster starts with,
// and keeps users from granting more than they have.
//
// The Authorizer keeps, besides the API objects themselves, one index: from a subject to the bindings that name it. A
// decision walks the bindings of the user and of its groups, and matches the rules of their roles in place.
//
// The bootstrap roles are named and shaped as upstream's ("Using RBAC Authorization", default roles), because users' own
// bindings refer to them. At start Reconcile creates what is missing and adds missing rules, while the cluster already
// serves: until that is done, an empty cluster is authorized by the bootstrap roles in memory.
package rbac
