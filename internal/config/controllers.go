package config

import (
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controllers are settings of controllers that run alone, with upstream's names and meanings. Beside a server of ours they are not needed,
// but for SigningDuration: the controllers have its keys.
type Controllers struct {
	// OwnAccounts gives each controller the rights of its own service account instead of all that the kubeconfig's user has.
	OwnAccounts bool `json:"useServiceAccountCredentials,omitempty"`
	// RootCA is published in every namespace, for pods. Default: the kubeconfig's CA.
	RootCA string `json:"rootCA,omitempty"`
	// ServiceAccountKey signs the tokens of Secrets of service accounts; without it there are none.
	ServiceAccountKey string `json:"serviceAccountPrivateKey,omitempty"`
	// SigningCert and SigningKey sign certificate requests; without them none are signed.
	SigningCert string `json:"clusterSigningCert,omitempty"`
	SigningKey  string `json:"clusterSigningKey,omitempty"`
	// SigningDuration is the longest life of a certificate that is signed, such as those of nodes. Default 8760h.
	SigningDuration metav1.Duration `json:"clusterSigningDuration,omitzero"`
	// AllocateNodeCIDRs gives each node its part of the pod range; without it, a network with addresses of its own does, or nobody.
	AllocateNodeCIDRs bool `json:"allocateNodeCIDRs"`
	// StoredElsewhere are the kinds, as GROUP/RESOURCE, that the API server keeps in etcds of their own.
	StoredElsewhere []string `json:"storedElsewhere,omitempty"`
}

func defaultControllers() Controllers {
	return Controllers{SigningDuration: metav1.Duration{Duration: 365 * 24 * time.Hour}, AllocateNodeCIDRs: true}
}

func (c *Controllers) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.OwnAccounts, "use-service-account-credentials", c.OwnAccounts, "each controller acts as its own service account, whose role fits it; without it all act as the kubeconfig's user")
	f.StringVar(&c.RootCA, "root-ca-file", c.RootCA, "CA that every namespace's ConfigMap kube-root-ca.crt holds, PEM file (default: the kubeconfig's)")
	f.StringVar(&c.ServiceAccountKey, "service-account-private-key-file", c.ServiceAccountKey, "key that signs the tokens of service accounts' Secrets, PEM file; without it they get none")
	f.StringVar(&c.SigningCert, "cluster-signing-cert-file", c.SigningCert, "CA that signs certificate requests, PEM file; without it and its key none are signed")
	f.StringVar(&c.SigningKey, "cluster-signing-key-file", c.SigningKey, "key of that CA, PEM file")
	f.BoolVar(&c.AllocateNodeCIDRs, "allocate-node-cidrs", c.AllocateNodeCIDRs, "give each node its part of --pod-cidr")
	f.StringSliceVar(&c.StoredElsewhere, "stored-elsewhere", c.StoredElsewhere, "kinds that the API server keeps in etcds of their own (its --etcd-servers-overrides), GROUP/RESOURCE; resource * is a whole group")
}

func (c *Controllers) validate(bad func(field, value, allowed string)) {
	if (c.SigningCert == "") != (c.SigningKey == "") {
		bad("cluster-signing-cert-file", c.SigningCert, "given together with cluster-signing-key-file")
	}
	for _, name := range c.StoredElsewhere {
		if _, ok := parseKind(name); !ok {
			bad("stored-elsewhere", name, "GROUP/RESOURCE, such as /events or apps/*")
		}
	}
	if c.SigningDuration.Duration <= 0 {
		bad("cluster-signing-duration", c.SigningDuration.Duration.String(), "more than 0, such as 8760h")
	}
}
