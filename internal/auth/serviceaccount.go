package auth

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const serviceAccountPrefix = "system:serviceaccount:"

// ServiceAccountName returns the user name of a service account.
func ServiceAccountName(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// SplitServiceAccount is the reverse of ServiceAccountName; ok is false for a name that no service
// account can have.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	namespace, name, err := serviceaccount.SplitUsername(user)
	return namespace, name, err == nil
}

// ServiceAccountGroups returns the groups of a namespace's service accounts.
func ServiceAccountGroups(namespace string) []string {
	return []string{GroupServiceAccounts, GroupServiceAccounts + ":" + namespace}
}

// ServiceAccount returns the user of a component in this process (a controller) that acts as a
// service account.
func ServiceAccount(namespace, name string) User {
	return Component(ServiceAccountName(namespace, name), ServiceAccountGroups(namespace)...)
}

const nodePrefix = "system:node:"

// NodeName returns the node whose agent the user is: the name is system:node:NAME, and the user is
// in the group system:nodes.
func NodeName(u User) (node string, ok bool) {
	if !slices.Contains(u.Groups, GroupNodes) {
		return "", false
	}
	name, found := strings.CutPrefix(u.Name, nodePrefix)
	if !found {
		return "", false
	}
	return name, true
}
