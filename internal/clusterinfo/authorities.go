package clusterinfo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// Keys of the ConfigMap for the cluster's CAs.
const (
	authoritiesKey = "authorities"
	generationKey  = "authoritiesGeneration"
)

// Authorities are the CAs that nodes trust.
type Authorities struct {
	// Bundle holds certificates in PEM. The first one signs the nodes' certificates.
	Bundle string
	// Generation grows with each change.
	Generation int64
}

// PublishAuthorities writes the CAs, unless the same or newer ones are there.
func PublishAuthorities(ctx context.Context, c client.Interface, a Authorities) error {
	for {
		have, err := client.Get[*corev1.ConfigMap](ctx, c, metav1.NamespaceSystem, Name)
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: Name}, Data: a.data()})
			if apierrors.IsAlreadyExists(err) {
				continue
			}
		case err == nil:
			if there := readAuthorities(have); there.Generation > a.Generation || there == a {
				return nil
			}
			update := have.DeepCopy()
			if update.Data == nil {
				update.Data = map[string]string{}
			}
			maps.Copy(update.Data, a.data())
			if _, err = client.Update(ctx, c, update); apierrors.IsConflict(err) {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("publish the cluster's CAs: %w", err)
		}
		return nil
	}
}

// ReadAuthorities returns the CAs; the Bundle is empty if none are published.
func ReadAuthorities(ctx context.Context, c client.Interface) (Authorities, error) {
	have, err := client.Get[*corev1.ConfigMap](ctx, c, metav1.NamespaceSystem, Name)
	if err != nil {
		return Authorities{}, err
	}
	return readAuthorities(have), nil
}

func readAuthorities(m *corev1.ConfigMap) Authorities {
	generation, err := strconv.ParseInt(m.Data[generationKey], 10, 64)
	if err != nil {
		generation = -1 // any server's are newer
	}
	return Authorities{Bundle: m.Data[authoritiesKey], Generation: generation}
}

func (a Authorities) data() map[string]string {
	return map[string]string{authoritiesKey: a.Bundle, generationKey: strconv.FormatInt(a.Generation, 10)}
}

// CertificatesAnnotation of a Node holds NodeCertificates in JSON. knarr's agent of a joined node
// writes it.
const CertificatesAnnotation = "knarr-project.github.io/certificates"

// NodeCertificates is what a node tells about its certificates.
type NodeCertificates struct {
	// Authorities is the hash of the trusted bundle (rotation.BundleHash).
	Authorities string          `json:"authorities"`
	Client      NodeCertificate `json:"client,omitzero"`
	Serving     NodeCertificate `json:"serving,omitzero"`
}

// NodeCertificate is one certificate of a node.
type NodeCertificate struct {
	Expires time.Time `json:"expires"`
	// Issuer is the hash of the key of the CA that signed it (pki.CertificateHash).
	Issuer string `json:"issuer,omitempty"`
}

// CertificatesOf returns what a node tells, and whether it tells anything.
func CertificatesOf(n *corev1.Node) (told NodeCertificates, ok bool) {
	text := n.Annotations[CertificatesAnnotation]
	return told, text != "" && json.Unmarshal([]byte(text), &told) == nil
}
