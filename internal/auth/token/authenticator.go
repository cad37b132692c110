package token

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
)

// Keys of User.Extra for service account tokens, as upstream.
const (
	ExtraPodName  = "authentication.kubernetes.io/pod-name"
	ExtraPodUID   = "authentication.kubernetes.io/pod-uid"
	ExtraNodeName = auth.ExtraNodeName
	ExtraNodeUID  = "authentication.kubernetes.io/node-uid"
)

// Labels of a legacy token's Secret (KEP-2799): the date of its last use, and the date since when
// it is invalid, after a year without use.
const (
	labelLastUsed     = "kubernetes.io/legacy-token-last-used"
	labelInvalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// recordRetryAfter is the pause after a failed write of a token's use; otherwise each request would
// retry it.
const recordRetryAfter = time.Minute

// deletionGrace is the time for which a token outlives the deletion of its bound object, so that a
// pod can finish its work.
const deletionGrace = 60 * time.Second

var (
	errExpired     = errors.New("service account token has expired")
	errNotYetValid = errors.New("service account token is not valid yet")
	errInvalidated = errors.New("service account token has been invalidated")
)

// AuthenticateToken implements auth.TokenAuthenticator for service account tokens.
func (s *Service) AuthenticateToken(ctx context.Context, token string, audiences []string) (auth.User, []string, bool, error) {
	c, err := s.verify(ctx, token)
	if c == nil || err != nil {
		return auth.User{}, nil, false, err
	}
	if c.Issuer == legacyIssuer {
		user, err := s.legacyUser(ctx, token, c)
		return user, audiences, err == nil, err
	}
	if err := c.checkTimes(s.Now()); err != nil {
		return auth.User{}, nil, false, err
	}
	accepted := auth.CommonAudiences(audiences, c.Audience)
	if len(accepted) == 0 {
		return auth.User{}, nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(c.Audience), audiences)
	}
	user, err := s.boundUser(ctx, c)
	return user, accepted, err == nil, err
}

// verify returns the claims of a token with a valid signature, or nil for a token that is not a
// service account token of this cluster.
func (s *Service) verify(ctx context.Context, token string) (*claims, error) {
	id := sha256.Sum256([]byte(token))
	if c, ok := s.keySet().verified.Get(id); ok {
		s.cached.hit()
		return c, nil
	}
	return s.cached.verify(func() (*claims, error) { return s.read(ctx, id, token) })
}

func (s *Service) read(ctx context.Context, id [sha256.Size]byte, token string) (*claims, error) {
	p, ok := jws.Split(token)
	if !ok {
		return nil, nil
	}
	var c claims
	if err := json.Unmarshal(p.Payload, &c); err != nil {
		return nil, nil
	}
	if c.Issuer != s.Issuer && c.Issuer != legacyIssuer && !slices.Contains(s.AcceptedIssuers, c.Issuer) {
		return nil, nil
	}
	set, err := s.verifySignature(ctx, &p)
	if err != nil {
		return nil, err
	}
	set.verified.Put(id, &c)
	return &c, nil
}

func (s *Service) boundUser(ctx context.Context, c *claims) (auth.User, error) {
	p := c.Private
	if p == nil || p.Namespace == "" || p.ServiceAccount.Name == "" {
		return auth.User{}, errors.New("service account token lacks the claim kubernetes.io")
	}
	if c.Subject != auth.ServiceAccountName(p.Namespace, p.ServiceAccount.Name) {
		return auth.User{}, fmt.Errorf("service account token's subject %q is not the account it names", c.Subject)
	}
	account, err := s.accounts.Find(ctx, p.Namespace, p.ServiceAccount.Name)
	if err := s.alive("service account", p.Namespace, p.ServiceAccount, account, err); err != nil {
		return auth.User{}, err
	}
	if p.Secret != nil {
		secret, err := s.secrets.Find(ctx, p.Namespace, p.Secret.Name)
		if err := s.alive("secret", p.Namespace, *p.Secret, secret, err); err != nil {
			return auth.User{}, err
		}
	}
	user := auth.User{
		Name: c.Subject, UID: string(account.UID), Groups: auth.ServiceAccountGroups(p.Namespace), Extra: map[string][]string{},
	}
	if c.ID != "" {
		user.Extra[auth.ExtraCredentialID] = []string{"JTI=" + c.ID}
	}
	if p.Pod != nil {
		pod, err := s.pods.Find(ctx, p.Namespace, p.Pod.Name)
		if err := s.alive("pod", p.Namespace, *p.Pod, pod, err); err != nil {
			return auth.User{}, err
		}
		user.Extra[ExtraPodName], user.Extra[ExtraPodUID] = []string{p.Pod.Name}, []string{p.Pod.UID}
	}
	if p.Node != nil {
		// A pod's token only names its node; a token bound to a node ends with it.
		if p.Pod == nil {
			node, err := s.nodes.Find(ctx, "", p.Node.Name)
			if err := s.alive("node", "", *p.Node, node, err); err != nil {
				return auth.User{}, err
			}
		}
		user.Extra[ExtraNodeName] = []string{p.Node.Name}
		if p.Node.UID != "" {
			user.Extra[ExtraNodeUID] = []string{p.Node.UID}
		}
	}
	user.Remarks = s.uses.countBound(c, s.Now())
	return user, nil
}

// alive checks that a named object is still the one the token was issued for, and was not deleted
// long ago.
func (s *Service) alive(kind, namespace string, r ref, obj metav1.Object, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s/%s has been deleted: %w", kind, namespace, r.Name, errInvalidated)
	case err != nil:
		return err
	case string(obj.GetUID()) != r.UID:
		return fmt.Errorf("%s UID (%s) does not match claim (%s): %w", kind, obj.GetUID(), r.UID, errInvalidated)
	}
	if deleted := obj.GetDeletionTimestamp(); deleted != nil && s.Now().After(deleted.Add(deletionGrace)) {
		return fmt.Errorf("%s %s/%s has been deleted: %w", kind, namespace, r.Name, errInvalidated)
	}
	return nil
}

func (s *Service) legacyUser(ctx context.Context, token string, c *claims) (auth.User, error) {
	if c.Subject != auth.ServiceAccountName(c.LegacyNamespace, c.LegacyName) || c.LegacySecretName == "" {
		return auth.User{}, fmt.Errorf("service account token's subject %q is not the account it names", c.Subject)
	}
	secret, err := s.secrets.Find(ctx, c.LegacyNamespace, c.LegacySecretName)
	switch {
	case apierrors.IsNotFound(err):
		return auth.User{}, errInvalidated
	case err != nil:
		return auth.User{}, err
	case secret.DeletionTimestamp != nil || !holds(secret, []byte(token)):
		return auth.User{}, errInvalidated
	}
	account, err := s.accounts.Find(ctx, c.LegacyNamespace, c.LegacyName)
	if err := s.alive("service account", c.LegacyNamespace, ref{Name: c.LegacyName, UID: c.LegacyUID}, account, err); err != nil {
		return auth.User{}, err
	}
	s.uses.legacy.Inc()
	// Also for an invalid token, so that an administrator who makes it valid again sees the use.
	s.recordUse(ctx, secret)
	if secret.Labels[labelInvalidSince] != "" {
		s.uses.marked.Inc()
		return auth.User{}, fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
			secret.Namespace, secret.Name, account.Namespace, account.Name, labelInvalidSince)
	}
	return auth.User{Name: c.Subject, UID: string(account.UID), Groups: auth.ServiceAccountGroups(c.LegacyNamespace), Remarks: s.uses.countInSecret(account, secret)}, nil
}

// holds reports whether a Secret has the token, or had it until the key was rotated. The caller has
// verified the signature, so a token of a dropped key does not get here.
func holds(secret *corev1.Secret, token []byte) bool {
	same := subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], token)
	replaced := subtle.ConstantTimeCompare([]byte(secret.Annotations[auth.AnnotationReplacedToken]), []byte(auth.ReplacedToken(token)))
	return same|replaced == 1
}

// recordUse writes the date of a legacy token's use to its Secret, for the controller that deletes
// unused tokens. A later use makes up for a failed write.
func (s *Service) recordUse(ctx context.Context, secret *corev1.Secret) {
	today := s.Now().UTC().Format(time.DateOnly)
	if secret.Labels[labelLastUsed] == today {
		return
	}
	if failed, ok := s.failedRecords.Get(secret.UID); ok && s.Now().Sub(failed) < recordRetryAfter {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, secret.UID, labelLastUsed, today)
	if _, err := s.Client.Patch(ctx, api.ResourceOf(secret), secret.Namespace, secret.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.failedRecords.Put(secret.UID, s.Now())
		slog.Warn("cannot record the use of a token", "component", "auth", "secret", secret.Namespace+"/"+secret.Name, "error", err)
	}
}
