package config

import (
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controllers holds the settings of controllers that run alone, with upstream's names and meanings.
// Controllers in a process with a server use the server's keys, and only need SigningDuration.
type Controllers struct {
	// OwnAccounts gives each controller the rights of its own service account, instead of all
	// rights of the kubeconfig's user.
	OwnAccounts bool
	// RootCA is published in every namespace, for pods. Default: the kubeconfig's CA.
	RootCA string
	// ServiceAccountKey signs the tokens in Secrets of service accounts. Without it no such tokens
	// are made.
	ServiceAccountKey string
	// SigningCert and SigningKey sign certificate requests. Without them none are signed.
	SigningCert string
	SigningKey  string
	// SigningDuration is the maximum lifetime of a signed certificate, such as a node's. Default
	// 8760h.
	SigningDuration metav1.Duration
	// AllocateNodeCIDRs assigns each node its part of the pod range. Disable it for a network with
	// addresses of its own.
	AllocateNodeCIDRs bool
	// StoredElsewhere lists the kinds, as GROUP/RESOURCE, that the API server keeps in etcds of
	// their own.
	StoredElsewhere []string
}

func defaultControllers() Controllers {
	return Controllers{SigningDuration: metav1.Duration{Duration: 365 * 24 * time.Hour}, AllocateNodeCIDRs: true}
}

func (c *Controllers) addFlags(f *pflag.FlagSet) {
	topic(f, ControllerWork, func(f *pflag.FlagSet) {
		f.BoolVar(&c.OwnAccounts, "use-service-account-credentials", c.OwnAccounts, "run each controller as its own service account, with only its rights\nWithout it all controllers act as the kubeconfig's user.")
		f.StringVar(&c.RootCA, "root-ca-file", c.RootCA, "CA `FILE` for the ConfigMap kube-root-ca.crt of every namespace, PEM (default: the kubeconfig's)")
		f.StringVar(&c.ServiceAccountKey, "service-account-private-key-file", c.ServiceAccountKey, "key `FILE` that signs the tokens of service account Secrets, PEM\nWithout it these Secrets get no tokens.")
		f.StringVar(&c.SigningCert, "cluster-signing-cert-file", c.SigningCert, "CA certificate `FILE` that signs certificate requests, PEM\nWithout it and its key no requests are signed.")
		f.StringVar(&c.SigningKey, "cluster-signing-key-file", c.SigningKey, "key `FILE` of that CA, PEM")
		f.BoolVar(&c.AllocateNodeCIDRs, "allocate-node-cidrs", c.AllocateNodeCIDRs, "give each node its part of --pod-cidr")
		f.StringSliceVar(&c.StoredElsewhere, "stored-elsewhere", c.StoredElsewhere, "kinds in an etcd of their own, as `GROUP/RESOURCE`\nName the kinds of the API server's --etcd-servers-overrides. GROUP/* is a whole group.")
	})
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
