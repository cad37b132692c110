package token

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// Bootstrap tokens (API reference, "Authenticating with Bootstrap Tokens").
const (
	SecretTypeBootstrap = corev1.SecretType("bootstrap.kubernetes.io/token")
	GroupBootstrappers  = "system:bootstrappers"
	bootstrapUserPrefix = "system:bootstrap:"
	bootstrapNamespace  = metav1.NamespaceSystem
	bootstrapPrefix     = "bootstrap-token-"
)

var (
	bootstrapToken = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// Bootstrap authenticates bootstrap tokens: Secrets of kube-system that allow authentication.
type Bootstrap struct {
	secrets   *client.Lazy[*corev1.Secret]
	audiences []string
	now       func() time.Time
}

// NewBootstrap returns a Bootstrap that reads Secrets with the client until ctx ends. audiences are
// the API server's, which the tokens are meant for.
func NewBootstrap(ctx context.Context, c client.Interface, audiences []string, now func() time.Time) Bootstrap {
	return Bootstrap{secrets: client.NewLazy[*corev1.Secret](ctx, c, nil), audiences: audiences, now: now}
}

// AuthenticateToken implements auth.TokenAuthenticator.
func (b Bootstrap) AuthenticateToken(ctx context.Context, token string, audiences []string) (auth.User, []string, bool, error) {
	match := bootstrapToken.FindStringSubmatch(token)
	accepted := auth.CommonAudiences(audiences, b.audiences)
	if match == nil || len(accepted) == 0 {
		return auth.User{}, nil, false, nil
	}
	id, secret := match[1], match[2]
	stored, err := b.secrets.Find(ctx, bootstrapNamespace, bootstrapPrefix+id)
	if apierrors.IsNotFound(err) {
		return auth.User{}, nil, false, nil
	}
	if err != nil {
		return auth.User{}, nil, false, err
	}
	groups, err := b.check(stored, id, secret)
	if err != nil {
		// The reason is only for the administrator. The client learns no more than that the token
		// is unknown, as upstream.
		slog.Info("bootstrap token refused", "component", "auth", "token", id, "reason", err)
		return auth.User{}, nil, false, nil
	}
	return auth.User{Name: bootstrapUserPrefix + id, Groups: groups}, accepted, true, nil
}

// check returns the groups of the token, or the reason of its refusal.
func (b Bootstrap) check(s *corev1.Secret, id, secret string) ([]string, error) {
	if s.DeletionTimestamp != nil || s.Type != SecretTypeBootstrap || string(s.Data["token-id"]) != id ||
		subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) != 1 {
		return nil, errors.New("bootstrap token is not valid")
	}
	if text := string(s.Data["expiration"]); text != "" {
		expires, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("bootstrap token %s: expiration: %w", id, err)
		}
		if !b.now().Before(expires) {
			return nil, fmt.Errorf("bootstrap token %s has expired", id)
		}
	}
	if string(s.Data["usage-bootstrap-authentication"]) != "true" {
		return nil, fmt.Errorf("bootstrap token %s is not for authentication", id)
	}
	groups := []string{GroupBootstrappers}
	extras := string(s.Data["auth-extra-groups"])
	if extras == "" {
		return groups, nil
	}
	for extra := range strings.SplitSeq(extras, ",") {
		if !bootstrapGroup.MatchString(extra) {
			return nil, fmt.Errorf("bootstrap token %s: group %q is not of the form %s", id, extra, bootstrapGroup)
		}
		groups = append(groups, extra)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}
