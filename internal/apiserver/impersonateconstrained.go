package apiserver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/token"
)

// impersonationMode is a mode of impersonation. The constrained modes (KEP-5284) require the verb
// impersonate:MODE on the identity, and impersonate-on:MODE:VERB on the object of the request.
type impersonationMode string

const (
	modeUnconstrained impersonationMode = "legacy" // for all requests
	// The node that the pod of a service account's token runs on.
	modeAssociatedNode impersonationMode = "associated-node"
	modeArbitraryNode  impersonationMode = "arbitrary-node"
	modeServiceAccount impersonationMode = "serviceaccount"
	modeUserInfo       impersonationMode = "user-info" // any other user
	nodeUserPrefix                       = "system:node:"
	authenticationAPI                    = "authentication.k8s.io"
	// The name that authorizes associated-node; the token decides which node it is.
	associatedNodeName    = "*"
	constrainedVerbPrefix = "impersonate:"
)

// verb returns the mode's verb for the audit log; empty for unconstrained.
func (m impersonationMode) verb() string {
	if m == modeUnconstrained {
		return ""
	}
	return constrainedVerbPrefix + string(m)
}

// constrainedModes returns the constrained modes for the wanted user. Nodes and service accounts
// are defined by their names: with chosen groups, UID or extras they can only be impersonated
// unconstrained.
func constrainedModes(user, wanted *auth.User) []impersonationMode {
	bare := wanted.UID == "" && len(wanted.Groups) == 0 && len(wanted.Extra) == 0
	if node, ok := nodeNameOf(wanted.Name); ok {
		switch {
		case !bare:
			return nil
		case tokenIsFromNode(user, node):
			return []impersonationMode{modeAssociatedNode, modeArbitraryNode}
		}
		return []impersonationMode{modeArbitraryNode}
	}
	if _, _, ok := auth.SplitServiceAccount(wanted.Name); ok {
		if !bare {
			return nil
		}
		return []impersonationMode{modeServiceAccount}
	}
	return []impersonationMode{modeUserInfo}
}

func nodeNameOf(name string) (node string, ok bool) {
	node, ok = strings.CutPrefix(name, nodeUserPrefix)
	return node, ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

// tokenIsFromNode reports whether the user is a service account with the token of a pod on the
// node.
func tokenIsFromNode(user *auth.User, node string) bool {
	_, _, account := auth.SplitServiceAccount(user.Name)
	return account && slices.Equal(user.Extra[token.ExtraNodeName], []string{node})
}

// authorizeConstrained checks a constrained mode for one request.
func (im *impersonator) authorizeConstrained(ctx context.Context, mode impersonationMode, user auth.User, wanted *auth.User, about auth.Attributes) error {
	about.User, about.Verb = user, "impersonate-on:"+string(mode)+":"+about.Verb
	if err := im.authorizeMode(ctx, mode, about); err != nil {
		return err
	}
	identity := func(resource, subresource, namespace, name string) auth.Attributes {
		return auth.Attributes{
			User: user, Verb: mode.verb(), Group: authenticationAPI, Version: "v1", Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
		}
	}
	switch mode {
	case modeAssociatedNode:
		return im.authorizeMode(ctx, mode, identity("nodes", "", "", associatedNodeName))
	case modeArbitraryNode:
		node, _ := nodeNameOf(wanted.Name)
		return im.authorizeMode(ctx, mode, identity("nodes", "", "", node))
	case modeServiceAccount:
		namespace, account, _ := auth.SplitServiceAccount(wanted.Name)
		return im.authorizeMode(ctx, mode, identity("serviceaccounts", "", namespace, account))
	}
	if err := im.authorizeMode(ctx, mode, identity("users", "", "", wanted.Name)); err != nil {
		return err
	}
	if wanted.UID != "" {
		if err := im.authorizeMode(ctx, mode, identity("uids", "", "", wanted.UID)); err != nil {
			return err
		}
	}
	if slices.Contains(wanted.Groups, auth.GroupMasters) {
		return auth.Forbidden(identity("groups", "", "", auth.GroupMasters), "impersonating the system:masters group is not allowed")
	}
	for _, group := range wanted.Groups {
		if group == "" {
			return auth.Forbidden(identity("groups", "", "", ""), "impersonating the empty string group is not allowed")
		}
		if err := im.authorizeMode(ctx, mode, identity("groups", "", "", group)); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted.Extra)) {
		if key == "" {
			return auth.Forbidden(identity("userextras", "", "", ""), "impersonating the empty string key in extra is not allowed")
		}
		if errs := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key); len(errs) > 0 {
			return auth.Forbidden(identity("userextras", "", "", ""), "impersonating an invalid key in extra is not allowed: "+errs.ToAggregate().Error())
		}
		for _, value := range wanted.Extra[key] {
			if err := im.authorizeMode(ctx, mode, identity("userextras", key, "", value)); err != nil {
				return err
			}
		}
	}
	return nil
}
