package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	impersonateUser   = "Impersonate-User"
	impersonateGroup  = "Impersonate-Group"
	impersonateUID    = "Impersonate-Uid"
	impersonateExtra  = "Impersonate-Extra-"
	authenticationAPI = "authentication.k8s.io"
)

// Impersonate reads the Impersonate- headers (kubectl --as). It returns the user to act as, which is requester when there
// are none, or the StatusError to answer with. The headers are removed, so that they are not forwarded.
func Impersonate(ctx context.Context, r *http.Request, requester User, z Authorizer) (user User, impersonated bool, err error) {
	name, uid := r.Header.Get(impersonateUser), r.Header.Get(impersonateUID)
	groups, extra := slices.Clone(r.Header.Values(impersonateGroup)), extraHeaders(r.Header, impersonateExtra)
	if name == "" {
		if uid != "" || len(groups) > 0 || len(extra) > 0 {
			return User{}, false, apierrors.NewInternalError(errors.New("requested impersonation of a group, uid or extra without impersonating a user name"))
		}
		return requester, false, nil
	}
	user = User{Name: name, UID: uid, Groups: groups, Extra: extra}
	for _, a := range impersonations(user) {
		a.User, a.Verb, a.Version = requester, "impersonate", "v1"
		if err := Check(ctx, z, a); err != nil {
			return User{}, false, err
		}
	}
	if namespace, _, ok := SplitServiceAccount(name); ok && len(groups) == 0 {
		user.Groups = ServiceAccountGroups(namespace)
	}
	if name == UserAnonymous {
		if !slices.Contains(user.Groups, GroupUnauthenticated) {
			user.Groups = append(user.Groups, GroupUnauthenticated)
		}
	} else {
		user = WithAuthenticatedGroup(user)
	}
	for _, h := range []string{impersonateUser, impersonateGroup, impersonateUID} {
		r.Header.Del(h)
	}
	deletePrefix(r.Header, impersonateExtra)
	return user, true, nil
}

// impersonations are what must be allowed for a user to be impersonated.
func impersonations(user User) []Attributes {
	var all []Attributes
	if namespace, name, ok := SplitServiceAccount(user.Name); ok && len(validation.IsDNS1123Label(namespace)) == 0 {
		all = append(all, Attributes{Resource: "serviceaccounts", Namespace: namespace, Name: name})
	} else {
		all = append(all, Attributes{Resource: "users", Name: user.Name})
	}
	for _, g := range user.Groups {
		all = append(all, Attributes{Resource: "groups", Name: g})
	}
	if user.UID != "" {
		all = append(all, Attributes{Group: authenticationAPI, Resource: "uids", Name: user.UID})
	}
	for key, values := range user.Extra {
		for _, v := range values {
			all = append(all, Attributes{Group: authenticationAPI, Resource: "userextras", Subresource: strings.ToLower(key), Name: v})
		}
	}
	return all
}
