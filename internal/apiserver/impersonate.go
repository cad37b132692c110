package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiuser "k8s.io/apiserver/pkg/authentication/user"

	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/memo"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateUID   = "Impersonate-Uid"
	impersonateGroup = "Impersonate-Group"
	impersonateExtra = "Impersonate-Extra-"
)

// impersonator decides whether a user may act as another one.
type impersonator struct {
	access  *access
	metrics *telemetry.SecurityMetrics
	clock   func() time.Time
	// lastModes are the modes that were allowed to users the last time.
	lastModes memo.Memo[string, impersonationMode]
}

// impersonate returns the user that the request's headers name, if the authenticated user may
// impersonate it, else user itself. about describes the request. constraint is the verb that
// allowed the impersonation for such requests only; it is empty if impersonation is allowed for all
// requests.
func (im *impersonator) impersonate(ctx context.Context, r *http.Request, user auth.User, about auth.Attributes) (as auth.User, constraint string, err error) {
	wanted := impersonatedUser(r.Header)
	if wanted.Name == "" {
		if wanted.UID != "" || len(wanted.Groups) > 0 || len(wanted.Extra) > 0 {
			// The text is upstream's.
			asked := &apiuser.DefaultInfo{UID: wanted.UID, Groups: wanted.Groups, Extra: wanted.Extra}
			return user, "", apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", asked))
		}
		return user, "", nil
	}
	mode, err := im.authorizeImpersonation(ctx, user, &wanted, about)
	if err != nil {
		return user, "", err
	}
	for header := range r.Header {
		if header == impersonateUser || header == impersonateUID || header == impersonateGroup || strings.HasPrefix(header, impersonateExtra) {
			r.Header.Del(header)
		}
	}
	return withImplicitGroups(wanted, mode), mode.verb(), nil
}

// impersonatedUser returns the user that the headers name.
func impersonatedUser(h http.Header) auth.User {
	return auth.User{Name: h.Get(impersonateUser), UID: h.Get(impersonateUID), Groups: h.Values(impersonateGroup), Extra: extraHeaders(h)}
}

func extraHeaders(h http.Header) map[string][]string {
	var extra map[string][]string
	for header, values := range h {
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
		extra[key] = append(extra[key], values...)
	}
	return extra
}

// authorizeImpersonation checks whether the user may impersonate the wanted one, for this request
// only or for all requests (the verb impersonate). As upstream, it first tries the mode that was
// allowed for this user the last time. So users with the verb impersonate never see refusals that
// name other verbs. The error is that of the first mode.
func (im *impersonator) authorizeImpersonation(ctx context.Context, user auth.User, wanted *auth.User, about auth.Attributes) (mode impersonationMode, err error) {
	modes := append(constrainedModes(&user, wanted), modeUnconstrained)
	last, _ := im.lastModes.Get(user.Name)
	if i := slices.Index(modes, last); i > 0 && last != "" {
		modes = slices.Insert(slices.Delete(modes, i, i+1), 0, last)
	}
	var refusal error
	began := im.clock()
	defer func() { im.metrics.Impersonations.Observe(string(mode), err, im.clock().Sub(began)) }()
	for i, mode := range modes {
		if mode == modeUnconstrained {
			err = im.authorizeUnconstrained(ctx, user, wanted)
		} else {
			err = im.authorizeConstrained(ctx, mode, user, wanted, about)
		}
		if err == nil {
			if mode != last {
				im.lastModes.Put(user.Name, mode)
			}
			return mode, nil
		}
		if i == 0 {
			refusal = err
		}
	}
	return "", refusal
}

// authorizeMode checks one permission that a mode of impersonation requires.
func (im *impersonator) authorizeMode(ctx context.Context, mode impersonationMode, a auth.Attributes) error {
	began := im.clock()
	err := im.access.authorize(ctx, a)
	im.metrics.Checks.Observe(string(mode), err, im.clock().Sub(began))
	return err
}

// authorizeUnconstrained checks the verb impersonate on each part of the wanted identity.
func (im *impersonator) authorizeUnconstrained(ctx context.Context, user auth.User, wanted *auth.User) error {
	check := func(a auth.Attributes) error {
		a.User, a.Verb = user, "impersonate"
		return im.authorizeMode(ctx, modeUnconstrained, a)
	}
	a := auth.Attributes{Version: "v1", Resource: "users", Name: wanted.Name}
	if namespace, account, ok := auth.SplitServiceAccount(wanted.Name); ok {
		a = auth.Attributes{Version: "v1", Resource: "serviceaccounts", Namespace: namespace, Name: account}
	}
	if err := check(a); err != nil {
		return err
	}
	if wanted.UID != "" {
		if err := check(auth.Attributes{Group: "authentication.k8s.io", Version: "v1", Resource: "uids", Name: wanted.UID}); err != nil {
			return err
		}
	}
	for _, group := range wanted.Groups {
		if err := check(auth.Attributes{Version: "v1", Resource: "groups", Name: group}); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted.Extra)) {
		for _, value := range wanted.Extra[key] {
			err := check(auth.Attributes{Group: "authentication.k8s.io", Version: "v1", Resource: "userextras", Subresource: key, Name: value})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// withImplicitGroups adds the groups that every user of that kind is in.
func withImplicitGroups(u auth.User, mode impersonationMode) auth.User {
	u.Groups = slices.Clone(u.Groups)
	add := func(group string) {
		if !slices.Contains(u.Groups, group) {
			u.Groups = append(u.Groups, group)
		}
	}
	if namespace, _, ok := auth.SplitServiceAccount(u.Name); ok && len(u.Groups) == 0 {
		add(auth.GroupServiceAccounts)
		add(auth.GroupServiceAccounts + ":" + namespace)
	}
	if mode == modeArbitraryNode || mode == modeAssociatedNode {
		add(auth.GroupNodes)
	}
	if u.Name == auth.UserAnonymous {
		add(auth.GroupUnauthenticated)
	} else if !slices.Contains(u.Groups, auth.GroupUnauthenticated) {
		add(auth.GroupAuthenticated)
	}
	return u
}

// apply returns the impersonated user, or user itself if the request impersonates nobody.
func (im *impersonator) apply(ctx context.Context, r *http.Request, user auth.User, info *wire.RequestInfo) (auth.User, error) {
	asked, since := r.Header.Get(impersonateUser) != "", time.Now()
	as, constraint, err := im.impersonate(ctx, r, user, wire.RequestAttributes(user, info))
	if err != nil {
		return user, err
	}
	if asked {
		audit.From(ctx).AddLatency(audit.Impersonation, time.Since(since))
		audit.From(ctx).Impersonate(as, constraint)
	}
	return as, nil
}
