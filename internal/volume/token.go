package volume

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/failpoint"
)

// maxTokenAge limits the age of tokens: a token is renewed after this time or 80 % of its lifetime,
// whichever comes first (KEP-1205).
const maxTokenAge = 24 * time.Hour

var serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")

// tokens requests service account tokens that are bound to pods and caches them until renewal.
type tokens struct {
	client client.Interface
	now    func() time.Time

	mu     sync.Mutex // guards issued
	issued map[tokenKey]token
}

type tokenKey struct {
	pod      types.UID
	account  string
	audience string // several audiences are joined
	seconds  int64
}

type token struct {
	value          string
	issued, expire time.Time
}

// renewAt is when the token must be replaced.
func (t token) renewAt() time.Time {
	at := t.issued.Add(t.expire.Sub(t.issued) * 8 / 10)
	if latest := t.issued.Add(maxTokenAge); latest.Before(at) {
		return latest
	}
	return at
}

// get returns a token that needs no renewal yet. If requesting a new one fails, it returns the old
// one until that expires.
func (t *tokens) get(ctx context.Context, pod *corev1.Pod, audiences []string, seconds int64) (string, error) {
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	key := tokenKey{pod: pod.UID, account: account, audience: strings.Join(audiences, "\x00"), seconds: seconds}
	t.mu.Lock()
	current, found := t.issued[key]
	t.mu.Unlock()
	now := t.now()
	if found && now.Before(current.renewAt()) {
		return current.value, nil
	}
	failpoint.Here("token-request")
	fresh, err := t.request(ctx, pod, account, audiences, seconds)
	if err != nil {
		if found && now.Before(current.expire) {
			return current.value, nil
		}
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	t.mu.Lock()
	t.issued[key] = fresh
	t.mu.Unlock()
	return fresh.value, nil
}

func (t *tokens) request(ctx context.Context, pod *corev1.Pod, account string, audiences []string, seconds int64) (token, error) {
	issued := t.now()
	made, err := t.client.CreateSub(ctx, serviceAccounts, pod.Namespace, account, "token", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         audiences,
			ExpirationSeconds: &seconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return token{}, err
	}
	request, ok := made.(*authenticationv1.TokenRequest)
	if !ok {
		return token{}, fmt.Errorf("the API answered a token request with a %T", made)
	}
	return token{value: request.Status.Token, issued: issued, expire: request.Status.ExpirationTimestamp.Time}, nil
}

// forget drops the pod's tokens.
func (t *tokens) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.issued {
		if key.pod == pod {
			delete(t.issued, key)
		}
	}
}
