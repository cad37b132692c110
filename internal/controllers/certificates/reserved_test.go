package certificates_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/certificates"
)

// askServing requests a serving certificate as the node, and returns the request's name.
func (m machine) askServing(node string, names ...string) string {
	m.t.Helper()
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, m.key)
	if err != nil {
		m.t.Fatal(err)
	}
	user := auth.Component("system:node:"+node, auth.GroupNodes)
	csr, err := client.Create(m.t.Context(), m.c.As(user), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeletServingSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}})
	if err != nil {
		m.t.Fatal(err)
	}
	return csr.Name
}

// addressed creates a Node that claims the addresses, as its agent can.
func addressed(c *controllertest.Cluster, name string, addresses ...string) {
	node := controllertest.Node(c, name, nil)
	controllertest.Retry(c, node, func(n *corev1.Node) {
		n.Status.Addresses = nil
		for _, a := range addresses {
			kind := corev1.NodeInternalIP
			if net.ParseIP(a) == nil {
				kind = corev1.NodeInternalDNS
			}
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: kind, Address: a})
		}
	}, "status")
}

func fixedServers(all ...controller.Server) func(context.Context) ([]controller.Server, error) {
	return func(context.Context) ([]controller.Server, error) { return all, nil }
}

func TestANodeGetsNoServingCertificateForNamesOfOthers(t *testing.T) {
	c := controllertest.New(t)
	c.Config.ClusterDomain = "cluster.local"
	c.Config.Servers = fixedServers(
		controller.Server{Name: "s1", Names: []string{"s1", "192.0.2.1", "api.example.com", "192.0.2.100"}},
		controller.Server{Name: "s2", Names: []string{"s2", "192.0.2.2"}})
	controllertest.Create(c, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.0.0/24"}}})
	c.Run(certificates.Approving)
	addressed(c, "other", "192.0.2.20", "2001:db8::20", "other.example.com")
	addressed(c, "s2", "192.0.2.2")
	m := newMachine(t, c)

	claims := []struct{ title, name, denial string }{
		{"the API server", "kubernetes", "API server"},
		{"the API server by its Service", "kubernetes.default.svc", "API server"},
		{"in capitals and with a dot at the end", "KUBERNETES.Default.", "API server"},
		{"another Service", "registry.prod.svc", "below svc belong to Services"},
		{"a Service with the cluster's domain", "registry.prod.svc.cluster.local", "below svc.cluster.local"},
		{"a pod", "10-42-0-1.prod.pod.cluster.local", "below pod.cluster.local"},
		{"a wildcard", "*.example.com", "wildcards"},
		{"localhost", "localhost", "each machine has it"},
		{"loopback", "127.0.0.1", "each machine has it"},
		{"IPv6 loopback", "::1", "each machine has it"},
		{"the Service kubernetes", "10.43.0.1", "range of Services 10.43.0.0/16"},
		{"another range of Services", "10.99.0.7", "range of Services 10.99.0.0/24"},
		{"no address", "0.0.0.0", "not the address of one machine"},
		{"a server's host", "s1", `the server "s1"`},
		{"a server's host in capitals", "S1", `the server "s1"`},
		{"a server's address", "192.0.2.1", `the server "s1"`},
		{"a name of the server's certificate", "api.example.com", `the server "s1"`},
		{"an address of the server's certificate", "192.0.2.100", `the server "s1"`},
		{"another node", "other", `node "other" has it too`},
		{"another node's DNS name", "other.example.com", `node "other" has it too`},
		{"another node's address", "192.0.2.20", `node "other" has it too`},
		{"another node's IPv6 address", "2001:db8::20", `node "other" has it too`},
	}
	for _, claim := range claims {
		t.Run(claim.title, func(t *testing.T) {
			addressed(c, "evil", "192.0.2.66", claim.name)
			kind := "the name "
			if net.ParseIP(claim.name) != nil {
				kind = "the address "
			}
			request := m.askServing("evil", "evil", "192.0.2.66", claim.name)
			m.expect(request, `Denied: node "evil" cannot have a serving certificate for `+kind)
			m.expectContains(request, claim.denial)
			if err := client.Delete[*corev1.Node](t.Context(), c.Client, "", "evil", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}

	addressed(c, "good", "192.0.2.30", "good.example.com")
	m.expect(m.askServing("good", "good", "192.0.2.30", "good.example.com"), "Approved")
	// The node on the machine of a server has its name and address.
	m.expect(m.askServing("s2", "s2", "192.0.2.2"), "Approved")
	m.expect(m.askServing("s2", "s2", "192.0.2.1"), "Denied: ")
}

func TestNodesOfAMachineWithoutANetworkShareLoopback(t *testing.T) {
	c := controllertest.New(t)
	c.Config.Servers = fixedServers(controller.Server{Name: "s1", Names: []string{"s1", "127.0.0.1"}})
	c.Run(certificates.Approving)
	addressed(c, "a", "127.0.0.1")
	addressed(c, "b", "127.0.0.1")
	m := newMachine(t, c)
	m.expect(m.askServing("a", "a", "127.0.0.1"), "Approved")
	m.expect(m.askServing("b", "b", "127.0.0.1"), "Approved")
	m.expect(m.askServing("b", "b", "a"), "Denied: ")
}

func TestAMachineCannotJoinUnderAReservedName(t *testing.T) {
	c := controllertest.New(t)
	c.Config.ClusterDomain = "cluster.local"
	c.Run(certificates.Approving)
	bootstrap := auth.Component("system:bootstrap:abcdef", "system:bootstrappers")
	m := newMachine(t, c)
	for _, name := range []string{"kubernetes", "kubernetes.default.svc", "a.b.svc.cluster.local", "localhost"} {
		m.expect(m.ask(bootstrap, name), `Denied: a node cannot have the name "`+name+`"`)
	}
	m.expect(m.ask(bootstrap, "kubernetes-1"), "Approved")
}
