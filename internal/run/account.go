package run

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// The parts of a joined node beside the node agent act as the service account auth.NodeAccount. The
// node requests tokens for it with its certificate, bound to its Node object. See
// docs/adr/0075-nodes-read-their-own-pods.md.

const (
	// offerTimeout limits the question whether the server has the account.
	offerTimeout = 5 * time.Second
	// nodePause is the interval for asking again while the Node object does not exist.
	nodePause = 200 * time.Millisecond
)

// tokenOfParts is the request for a token of a node's parts.
var tokenOfParts = authorizationv1.ResourceAttributes{
	Verb: "create", Version: "v1", Resource: "serviceaccounts", Subresource: "token", Namespace: metav1.NamespaceSystem, Name: auth.NodeAccount,
}

// may reports whether the server allows an identity a request.
func may(ctx context.Context, c client.Interface, a authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	review, err := client.Create(ctx, c, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// offersAccount reports whether the server lets this node request tokens for its parts. Servers of
// other vendors do not. A server that does not answer is taken for one that does, because the node
// has joined it.
func offersAccount(ctx context.Context, c client.Interface) bool {
	allowed, err := may(ctx, c, tokenOfParts)
	return allowed || err != nil
}

// chosen is the client of the parts of a node agent that runs alone. It acts as the kubeconfig's
// identity if that may read all nodes, or if the server has no account for the parts. The server
// need not answer at the start: Views wait. All other methods use the kubeconfig's identity.
type chosen struct {
	client.Interface
	parts client.Interface
	log   *slog.Logger

	mu     sync.Mutex // guards choice
	choice client.Interface
}

// View implements client.Interface.
func (c *chosen) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	by, err := c.choose(ctx)
	if err != nil {
		return nil, err
	}
	return by.View(ctx, res, scope)
}

func (c *chosen) choose(ctx context.Context) (client.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pause := firstPause; c.choice == nil; pause = min(2*pause, 30*time.Second) {
		suffices, err := may(ctx, c.Interface, authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "nodes"})
		offered := false
		if err == nil && !suffices {
			offered, err = may(ctx, c.Interface, tokenOfParts)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			c.log.Info("waiting for the server to learn which identity the pod network has", "error", err)
			sleep(ctx, pause)
		case offered:
			c.choice = c.parts
		default:
			c.choice = c.Interface
		}
	}
	return c.choice, nil
}

// partsConfig returns the configuration of the node's parts for reaching the server. Their
// connections have no client certificate, since the server prefers a certificate to a token.
func (j *joined) partsConfig(ctx context.Context, node client.Interface) *rest.Config {
	return withTokens(ctx, &rest.Config{Host: j.server, Transport: j.parts}, node, j.cfg.NodeName)
}

// withTokens lets a configuration without credentials act as a node's parts.
func withTokens(ctx context.Context, own *rest.Config, by client.Interface, node string) *rest.Config {
	tokens := &nodeTokens{ctx: ctx, client: by, node: node}
	own.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedTokenSource(tokens)))
	return own
}

// nodeTokens requests tokens of auth.NodeAccount that are bound to the Node. They end with it.
type nodeTokens struct {
	ctx    context.Context // the process's context; oauth2 has none for a request
	client client.Interface
	node   string
}

var _ oauth2.TokenSource = (*nodeTokens)(nil)

// Token is called when there is no token yet, some time before the last one expires, and when the
// server has refused it. At the first start it waits until the node agent has registered the Node.
func (t *nodeTokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	for {
		token, err := t.ask(ctx)
		if err == nil {
			return token, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("token of service account %s: %w", auth.NodeAccount, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("token of service account %s: %w", auth.NodeAccount, err)
		case <-time.After(nodePause):
		}
	}
}

func (t *nodeTokens) ask(ctx context.Context) (*oauth2.Token, error) {
	node, err := client.Get[*corev1.Node](ctx, t.client, "", t.node)
	if err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(tokenSeconds)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}}
	asked := time.Now()
	obj, err := t.client.CreateSub(ctx, api.ResourceOf(&corev1.ServiceAccount{}), metav1.NamespaceSystem, auth.NodeAccount, "token", request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	answer, ok := obj.(*authenticationv1.TokenRequest)
	if !ok || answer.Spec.ExpirationSeconds == nil {
		return nil, fmt.Errorf("the server answered with a %T", obj)
	}
	// By this machine's clock, which may differ from the server's, and early enough for a server
	// that does not answer for a while.
	life := time.Duration(*answer.Spec.ExpirationSeconds) * time.Second * 3 / 4
	return &oauth2.Token{AccessToken: answer.Status.Token, TokenType: "Bearer", Expiry: asked.Add(life)}, nil
}
