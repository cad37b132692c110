package config

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

// Kubelets configures the API server's connections to nodes, with upstream's names.
type Kubelets struct {
	// ClientCert and ClientKey are PEM files with the client certificate for nodes. Default: a
	// certificate of the cluster's own CA.
	ClientCert string
	ClientKey  string
	// Authority is a PEM file with the CAs of the nodes' certificates. Default: the cluster's own.
	Authority string
	// Unverified accepts any certificate of a node, as upstream's API server without Authority.
	// kubeadm's nodes have certificates that they have signed themselves.
	Unverified bool
	// AddressTypes are the types of node addresses to try, in order. Default: addresses before
	// names.
	AddressTypes []string
}

// addressTypes are the types of node addresses.
var addressTypes = []string{string(corev1.NodeHostName), string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP), string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP)}

func (c *Kubelets) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.ClientCert, "kubelet-client-certificate", c.ClientCert, "client certificate `FILE` shown to kubelets, PEM (default: one of the cluster's CA)\nChanges need no restart.")
	f.StringVar(&c.ClientKey, "kubelet-client-key", c.ClientKey, "key `FILE` of that certificate, PEM")
	f.StringVar(&c.Authority, "kubelet-certificate-authority", c.Authority, "CA `FILE` for kubelets' certificates, PEM (default: the cluster's)\nThe file is read once, at the start.")
	f.BoolVar(&c.Unverified, "kubelet-skip-verify", c.Unverified, "accept any certificate of kubelets, as those of kubeadm, which sign their own\nWhoever can answer at a node's address then gets what `kubectl exec` sends there. kube-apiserver without --kubelet-certificate-authority does the same.")
	f.StringSliceVar(&c.AddressTypes, "kubelet-preferred-address-types", c.AddressTypes, "`TYPES` of node addresses to try, in order (default: InternalIP,ExternalIP,InternalDNS,ExternalDNS,Hostname)")
	values(f, "kubelet-preferred-address-types", addressTypes...)
}

// Order returns AddressTypes as API types.
func (c *Kubelets) Order() (types []corev1.NodeAddressType) {
	for _, name := range c.AddressTypes {
		types = append(types, corev1.NodeAddressType(name))
	}
	return types
}

func (c *Kubelets) validate(bad func(field, value, allowed string)) {
	if (c.ClientCert == "") != (c.ClientKey == "") {
		bad("kubelet-client-certificate", c.ClientCert, "given together with kubelet-client-key")
	}
	if c.Unverified && c.Authority != "" {
		bad("kubelet-skip-verify", "true", "given without kubelet-certificate-authority")
	}
	for _, name := range c.AddressTypes {
		if !slices.Contains(addressTypes, name) {
			bad("kubelet-preferred-address-types", name, "out of "+strings.Join(addressTypes, ", "))
		}
	}
}
