package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const serviceAccountPrefix = "system:serviceaccount:"

// AnnotationReplacedToken is the annotation of a Secret whose token was signed again with a new
// key. Its value is the ReplacedToken of the token before, which is accepted as long as its key is.
const AnnotationReplacedToken = "knarr.dev/replaced-token-sha256"

// ReplacedToken returns the SHA-256 hash of a token, in hexadecimal digits.
func ReplacedToken(token []byte) string {
	sum := sha256.Sum256(token)
	return hex.EncodeToString(sum[:])
}

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

// NodeAccount is the service account in kube-system of a node's parts beside its kubelet: pod
// network, network policies, service proxy, DNS, announcements of addresses and local volumes. A
// node requests tokens for it that are bound to its own Node.
const NodeAccount = "knarr-node"

const (
	// NodeKeysAnnotation of a Node names the keys that own it (package controllers/certificates).
	// Joined nodes have it.
	NodeKeysAnnotation = "knarr-project.github.io/client-keys"
	// NodeAccountAnnotation of a Node says that its parts act as the service account of this name.
	// Joined nodes of earlier versions lack it.
	NodeAccountAnnotation = "knarr-project.github.io/node-account"
)

// ExtraNodeName is the key of User.Extra for the node of a service account's token, as upstream.
const ExtraNodeName = "authentication.kubernetes.io/node-name"

// NodePart returns the user of a node's parts in this process.
func NodePart(node string) User {
	u := ServiceAccount("kube-system", NodeAccount)
	u.Extra = map[string][]string{ExtraNodeName: {node}}
	return u
}

// NodeOfPart returns the node whose part the user is. ok is false for other users. node is empty if
// the token is bound to none.
func NodeOfPart(u User) (node string, ok bool) {
	if u.Name != ServiceAccountName("kube-system", NodeAccount) {
		return "", false
	}
	if names := u.Extra[ExtraNodeName]; len(names) == 1 {
		node = names[0]
	}
	return node, true
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
