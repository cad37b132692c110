package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/auth"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateUID   = "Impersonate-Uid"
	impersonateGroup = "Impersonate-Group"
	impersonateExtra = "Impersonate-Extra-"
)

// impersonate makes the request somebody else's if its headers ask for that and the user may.
func (s *Server) impersonate(ctx context.Context, r *http.Request, user auth.User) (auth.User, error) {
	name, uid, groups := r.Header.Get(impersonateUser), r.Header.Get(impersonateUID), r.Header.Values(impersonateGroup)
	extra := extraHeaders(r)
	if name == "" {
		if uid != "" || len(groups) > 0 || len(extra) > 0 {
			return user, apierrors.NewInternalError(errImpersonateNobody)
		}
		return user, nil
	}
	if err := s.mayImpersonate(ctx, user, name, uid, groups, extra); err != nil {
		return user, err
	}
	for header := range r.Header {
		if header == impersonateUser || header == impersonateUID || header == impersonateGroup || strings.HasPrefix(header, impersonateExtra) {
			r.Header.Del(header)
		}
	}
	return impersonated(name, uid, groups, extra), nil
}

type impersonationError string

func (e impersonationError) Error() string { return string(e) }

const errImpersonateNobody = impersonationError("requested impersonation without specifying a user name")

func extraHeaders(r *http.Request) map[string][]string {
	var extra map[string][]string
	for header, values := range r.Header {
		key, ok := strings.CutPrefix(header, impersonateExtra)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if unescaped, err := url.PathUnescape(key); err == nil {
			key = unescaped
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = values
	}
	return extra
}

// mayImpersonate checks the verb impersonate on each part of the wanted identity.
func (s *Server) mayImpersonate(ctx context.Context, user auth.User, name, uid string, groups []string, extra map[string][]string) error {
	check := func(a auth.Attributes) error {
		a.User, a.Verb = user, "impersonate"
		return s.authorize(ctx, a)
	}
	a := auth.Attributes{Version: "v1", Resource: "users", Name: name}
	if namespace, account, ok := serviceAccountName(name); ok {
		a = auth.Attributes{Version: "v1", Resource: "serviceaccounts", Namespace: namespace, Name: account}
	}
	if err := check(a); err != nil {
		return err
	}
	if uid != "" {
		if err := check(auth.Attributes{Group: "authentication.k8s.io", Version: "v1", Resource: "uids", Name: uid}); err != nil {
			return err
		}
	}
	for _, group := range groups {
		if err := check(auth.Attributes{Version: "v1", Resource: "groups", Name: group}); err != nil {
			return err
		}
	}
	for key, values := range extra {
		for _, value := range values {
			err := check(auth.Attributes{Group: "authentication.k8s.io", Version: "v1", Resource: "userextras", Subresource: key, Name: value})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func serviceAccountName(name string) (namespace, account string, ok bool) {
	rest, ok := strings.CutPrefix(name, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, account, ok = strings.Cut(rest, ":")
	return namespace, account, ok && namespace != "" && account != "" && !strings.Contains(account, ":")
}

// impersonated adds the groups that everybody of that sort is in.
func impersonated(name, uid string, groups []string, extra map[string][]string) auth.User {
	groups = slices.Clone(groups)
	add := func(group string) {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	if namespace, _, ok := serviceAccountName(name); ok && len(groups) == 0 {
		add(auth.GroupServiceAccounts)
		add(auth.GroupServiceAccounts + ":" + namespace)
	}
	if name == auth.UserAnonymous {
		add(auth.GroupUnauthenticated)
	} else if !slices.Contains(groups, auth.GroupUnauthenticated) {
		add(auth.GroupAuthenticated)
	}
	return auth.User{Name: name, UID: uid, Groups: groups, Extra: extra}
}
