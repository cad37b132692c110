package certificates_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/certificates"
)

// machine requests a node's client certificate with a key of its own.
type machine struct {
	t   *testing.T
	c   *controllertest.Cluster
	key crypto.Signer
}

func newMachine(t *testing.T, c *controllertest.Cluster) machine {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return machine{t, c, key}
}

func (m machine) hash() string {
	der, err := x509.MarshalPKIXPublicKey(m.key.Public())
	if err != nil {
		m.t.Fatal(err)
	}
	return certificates.KeyHash(der)
}

// ask requests the node's certificate as the user, and returns the request's name.
func (m machine) ask(user auth.User, node string) string {
	m.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, m.key)
	if err != nil {
		m.t.Fatal(err)
	}
	csr, err := client.Create(m.t.Context(), m.c.As(user), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}})
	if err != nil {
		m.t.Fatal(err)
	}
	return csr.Name
}

// answer returns the outcome of the request: "Approved", "Denied: MESSAGE" or "".
func (m machine) answer(request string) string {
	m.t.Helper()
	csr, err := client.Get[*certificatesv1.CertificateSigningRequest](m.t.Context(), m.c.Client, "", request)
	if err != nil {
		m.t.Fatal(err)
	}
	if len(csr.Status.Conditions) == 0 {
		return ""
	}
	cond := csr.Status.Conditions[0]
	if cond.Type == certificatesv1.CertificateDenied {
		return "Denied: " + cond.Message
	}
	return string(cond.Type)
}

func (m machine) expect(request, want string) {
	m.t.Helper()
	m.c.Eventually("request is "+want, func() string {
		if got := m.answer(request); !strings.HasPrefix(got, want) {
			return "answer " + got
		}
		return ""
	})
}

func (m machine) expectContains(request, want string) {
	m.t.Helper()
	if got := m.answer(request); !strings.Contains(got, want) {
		m.t.Errorf("answer %q, wanted %q in it", got, want)
	}
}

func TestANodesNameBelongsToTheMachineWithItsKey(t *testing.T) {
	c := controllertest.New(t)
	c.Run(certificates.Approving)
	bootstrap := auth.Component("system:bootstrap:abcdef", "system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token")
	first, second := newMachine(t, c), newMachine(t, c)

	first.expect(first.ask(bootstrap, "n1"), "Approved")
	// Until the first machine has created its Node, another machine of the same name waits.
	waiting := second.ask(bootstrap, "n1")
	first.expect(first.ask(bootstrap, "n1"), "Approved") // this later request is answered first
	if got := second.answer(waiting); got != "" {
		t.Errorf("the second machine's request is %q", got)
	}
	second.expect(second.ask(bootstrap, "n2"), "Approved")

	node := controllertest.Node(c, "n1", nil)
	second.expect(second.ask(bootstrap, "n1"), `Denied: node "n1" belongs to another machine: join with another --node-name, or, if that machine is gone for good`)
	// Neither machine has written its key to the Node.
	first.expect(first.ask(bootstrap, "n1"), "Denied: ")

	controllertest.Retry(c, node, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, certificates.NodeKeysAnnotation, "0123,"+first.hash())
	})
	first.expect(first.ask(bootstrap, "n1"), "Approved")
	second.expect(second.ask(bootstrap, "n1"), "Denied: ")
	// The node renews with a new key. Users with their own rights are not limited.
	second.expect(second.ask(auth.Component("system:node:n1", auth.GroupNodes), "n1"), "Approved")
	second.expect(second.ask(auth.Component("admin", auth.GroupMasters), "n1"), "Approved")

}

func TestANameIsFreeAgainOnceItsNodeIsDeleted(t *testing.T) {
	c := controllertest.New(t)
	c.Run(certificates.Approving)
	bootstrap := auth.Component("system:bootstrap:abcdef", "system:bootstrappers")
	first, second := newMachine(t, c), newMachine(t, c)
	node := controllertest.Node(c, "n1", map[string]string{})
	controllertest.Retry(c, node, func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, certificates.NodeKeysAnnotation, first.hash())
	})
	second.expect(second.ask(bootstrap, "n1"), "Denied: ")
	if err := client.Delete[*corev1.Node](t.Context(), c.Client, "", "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second.expect(second.ask(bootstrap, "n1"), "Approved")
}
