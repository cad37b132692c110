package certificates

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// NodeKeysAnnotation of a Node lists the keys that own the node's name: the key of its agent's
// client certificate and, during a renewal, the previous one. Each is the SHA-256 of the public key
// (DER) in hexadecimal digits, separated by commas. knarr's node agent writes it.
const NodeKeysAnnotation = auth.NodeKeysAnnotation

const (
	// bootstrappers is the group of all bootstrap tokens.
	bootstrappers = "system:bootstrappers"
	// settling is the time that an admitted machine has to create its Node. Meanwhile other
	// machines of the same name wait.
	settling = 30 * time.Second
)

// KeyHash returns the form of a public key in NodeKeysAnnotation; publicKey is DER
// (SubjectPublicKeyInfo).
func KeyHash(publicKey []byte) string {
	sum := sha256.Sum256(publicKey)
	return hex.EncodeToString(sum[:])
}

// Claimed reports whether any key owns the node's name, and whether this key does. Nobody owns the
// name of a node without the annotation yet.
func Claimed(node *corev1.Node, key string) (claimed, ours bool) {
	keys := node.Annotations[NodeKeysAnnotation]
	return keys != "", slices.Contains(strings.Split(keys, ","), key)
}

// claims decides which machine gets a node's name if several request it. The approving controller's
// goroutine owns its state.
type claims struct {
	env controller.Env
	// admitted holds the recently admitted machines by node name.
	admitted map[string]admission
	now      func() time.Time
}

type admission struct {
	key string
	at  time.Time
}

// judge decides about the request of a bootstrapping machine: refusal is the reason of a denial,
// wait the time until the request can be answered.
//
// A bootstrap token lets a machine join under any name. So the name of an existing node is reserved
// for the machine that has its key: another machine with the same host name would take over the
// node's pods and Secrets. A machine that has lost its key can join once the Node is deleted.
func (c *claims) judge(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (refusal string, wait time.Duration, err error) {
	if !slices.Contains(csr.Spec.Groups, bootstrappers) {
		return "", 0, nil
	}
	name, key := strings.TrimPrefix(request.Subject.CommonName, "system:node:"), KeyHash(request.RawSubjectPublicKeyInfo)
	if why := reservedDomain(name, c.env.Config.ClusterDomain); why != "" {
		return fmt.Sprintf("a node cannot have the name %q: %s; join with another --node-name", name, why), 0, nil
	}
	node, err := client.Get[*corev1.Node](ctx, c.env.Client, "", name)
	switch {
	case apierrors.IsNotFound(err):
		now := c.now()
		for other, l := range c.admitted {
			if now.Sub(l.at) >= settling {
				delete(c.admitted, other)
			}
		}
		if l, ok := c.admitted[name]; ok && l.key != key {
			return "", l.at.Add(settling).Sub(now), nil
		}
		c.admitted[name] = admission{key, now}
		return "", 0, nil
	case err != nil:
		return "", 0, fmt.Errorf("node of certificate signing request %s: %w", csr.Name, err)
	}
	if _, ours := Claimed(node, key); ours {
		return "", 0, nil
	}
	refusal = fmt.Sprintf("node %q belongs to another machine: join with another --node-name, or, if that machine "+
		"is gone for good or has lost its data folder, run `kubectl delete node %s` and join again", name, name)
	return refusal, 0, nil
}

// deny denies a request with the reason and the message.
func deny(ctx context.Context, env controller.Env, csr *certificatesv1.CertificateSigningRequest, reason, message string) error {
	now := metav1.Now()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now})
	return writeApproval(ctx, env, csr)
}
