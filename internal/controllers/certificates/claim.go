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

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// NodeKeysAnnotation of a Node names the keys that may have its name: the key of its agent's client
// certificate and, while that is being renewed, the one before. Each is the SHA-256 of the public
// key (DER) in hexadecimal digits; commas separate them. Knarr's node agent writes it.
const NodeKeysAnnotation = "knarr-project.github.io/client-keys"

const (
	// bootstrappers is the group of all bootstrap tokens.
	bootstrappers = "system:bootstrappers"
	// settling is how long a machine that was let in has for making its Node; meanwhile others of
	// the same name wait.
	settling = 30 * time.Second
)

// KeyHash is how NodeKeysAnnotation names a public key, which is given as DER
// (SubjectPublicKeyInfo).
func KeyHash(publicKey []byte) string {
	sum := sha256.Sum256(publicKey)
	return hex.EncodeToString(sum[:])
}

// Claimed reports whether the node's name belongs to the key. A node without the annotation belongs
// to nobody yet.
func Claimed(node *corev1.Node, key string) (claimed, ours bool) {
	keys := node.Annotations[NodeKeysAnnotation]
	return keys != "", slices.Contains(strings.Split(keys, ","), key)
}

// claims decides which machine gets a node's name when several want it. Its state belongs to the
// approving controller's goroutine.
type claims struct {
	env controller.Env
	// let are those that were let in lately, by node.
	let map[string]letIn
	now func() time.Time
}

type letIn struct {
	key string
	at  time.Time
}

// judge says what becomes of a bootstrapping machine's request: refusal is why it is denied, wait
// how long it has to wait for an answer.
//
// A token lets a machine join under any name, so the name of a node that is there is for the
// machine alone that has its key: another one with the same host name would take over its pods and
// Secrets. A machine that has lost its key can join once the Node is deleted.
func (c *claims) judge(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (refusal string, wait time.Duration, err error) {
	if !slices.Contains(csr.Spec.Groups, bootstrappers) {
		return "", 0, nil
	}
	name, key := strings.TrimPrefix(request.Subject.CommonName, "system:node:"), KeyHash(request.RawSubjectPublicKeyInfo)
	node, err := client.Get[*corev1.Node](ctx, c.env.Client, "", name)
	switch {
	case apierrors.IsNotFound(err):
		now := c.now()
		for other, l := range c.let {
			if now.Sub(l.at) >= settling {
				delete(c.let, other)
			}
		}
		if l, ok := c.let[name]; ok && l.key != key {
			return "", l.at.Add(settling).Sub(now), nil
		}
		c.let[name] = letIn{key, now}
		return "", 0, nil
	case err != nil:
		return "", 0, fmt.Errorf("node of certificate signing request %s: %w", csr.Name, err)
	}
	if _, ours := Claimed(node, key); ours {
		return "", 0, nil
	}
	return fmt.Sprintf("node %q belongs to another machine: join with another --node-name, or, if that machine is gone for good or has lost its data folder, run `kubectl delete node %s` and join again", name, name), 0, nil
}

// deny refuses a request for the reason.
func deny(ctx context.Context, env controller.Env, csr *certificatesv1.CertificateSigningRequest, message string) error {
	now := metav1.Now()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "NodeNameTaken", Message: message, LastUpdateTime: now, LastTransitionTime: now})
	return writeApproval(ctx, env, csr)
}
