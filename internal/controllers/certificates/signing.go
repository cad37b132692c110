package certificates

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Signing signs approved requests for the signers of kubernetes.io with the cluster's CA. It does
// nothing in a process without the CA's key.
var Signing = controller.Starter{Name: "certificatesigningrequest-signing-controller", Account: account, Run: runSigning}

const (
	legacyUnknown  = "kubernetes.io/legacy-unknown"
	defaultSigning = 365 * 24 * time.Hour
	shortest       = 10 * time.Minute
	backdate       = 5 * time.Minute // for machines with slow clocks
)

func runSigning(ctx context.Context, env controller.Env) error {
	if len(env.Config.Authority().SigningKey) == 0 {
		<-ctx.Done()
		return nil
	}
	if _, _, err := readCA(env.Config.Authority()); err != nil {
		return err
	}
	longest := env.Config.ClusterSigningTime
	if longest == 0 {
		longest = defaultSigning
	}
	s := signer{env: env, longest: longest, now: env.Now}
	view, err := client.Open[*certificatesv1.CertificateSigningRequest](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open certificate signing requests: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   "certificatesigningrequest-signing-controller",
		Inputs: []controller.Input{controller.Self(view)},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			csr, ok := view.Get("", key.Name)
			if !ok || condition(csr, certificatesv1.CertificateApproved) == nil || condition(csr, certificatesv1.CertificateDenied) != nil ||
				condition(csr, certificatesv1.CertificateFailed) != nil || len(csr.Status.Certificate) > 0 || !ours(csr.Spec.SignerName) {
				return controller.Result{}, nil
			}
			return controller.Result{}, s.sign(ctx, csr.DeepCopy())
		},
	}
	return loop.Run(ctx)
}

func ours(name string) bool {
	switch name {
	case certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName, legacyUnknown:
		return true
	}
	return false
}

// readCA parses the cluster's CA.
func readCA(a controller.Authority) (*x509.Certificate, crypto.PrivateKey, error) {
	pair, err := tls.X509KeyPair(a.SigningCert, a.SigningKey)
	if err != nil {
		return nil, nil, fmt.Errorf("the cluster's CA: %w", err)
	}
	ca, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, nil, fmt.Errorf("the cluster's CA: %w", err)
	}
	return ca, pair.PrivateKey, nil
}

type signer struct {
	env     controller.Env
	longest time.Duration
	now     func() time.Time
}

func (s signer) sign(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	request, err := parse(csr)
	if err == nil {
		err = validateFor(csr, request)
	}
	if err != nil {
		if csr.Spec.SignerName == legacyUnknown {
			return controller.Terminal(fmt.Errorf("certificate signing request %s: %w", csr.Name, err))
		}
		now := metav1.NewTime(s.now())
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(), LastUpdateTime: now, LastTransitionTime: now})
		return s.write(ctx, csr)
	}
	if csr.Status.Certificate, err = s.issue(csr, request); err != nil {
		return fmt.Errorf("sign certificate request %s: %w", csr.Name, err)
	}
	return s.write(ctx, csr)
}

func (s signer) write(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	_, err := client.UpdateStatus(ctx, s.env.Client, csr)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// issue returns the signed certificate in PEM.
func (s signer) issue(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) ([]byte, error) {
	authority := s.env.Config.Authority()
	ca, key, err := readCA(authority)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	ttl := s.longest
	if csr.Spec.ExpirationSeconds != nil {
		ttl = min(ttl, max(shortest, time.Duration(*csr.Spec.ExpirationSeconds)*time.Second))
	}
	now := s.now()
	usage, extended := usagesOf(csr.Spec.Usages)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: request.Subject,
		DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(ttl), KeyUsage: usage, ExtKeyUsage: extended, BasicConstraintsValid: true,
	}
	if template.NotBefore.Before(ca.NotBefore) {
		template.NotBefore = ca.NotBefore
	}
	if template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	if !template.NotAfter.After(now) {
		return nil, fmt.Errorf("the cluster's CA has expired at %s", ca.NotAfter)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), authority.Chain...), nil
}

var keyUsages = map[certificatesv1.KeyUsage]x509.KeyUsage{
	certificatesv1.UsageSigning: x509.KeyUsageDigitalSignature, certificatesv1.UsageDigitalSignature: x509.KeyUsageDigitalSignature,
	certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment, certificatesv1.UsageKeyEncipherment: x509.KeyUsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement: x509.KeyUsageKeyAgreement, certificatesv1.UsageDataEncipherment: x509.KeyUsageDataEncipherment,
	certificatesv1.UsageCertSign: x509.KeyUsageCertSign, certificatesv1.UsageCRLSign: x509.KeyUsageCRLSign,
	certificatesv1.UsageEncipherOnly: x509.KeyUsageEncipherOnly, certificatesv1.UsageDecipherOnly: x509.KeyUsageDecipherOnly,
}

var extendedUsages = map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
	certificatesv1.UsageAny: x509.ExtKeyUsageAny, certificatesv1.UsageServerAuth: x509.ExtKeyUsageServerAuth, certificatesv1.UsageClientAuth: x509.ExtKeyUsageClientAuth,
	certificatesv1.UsageCodeSigning: x509.ExtKeyUsageCodeSigning, certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
	certificatesv1.UsageSMIME: x509.ExtKeyUsageEmailProtection, certificatesv1.UsageIPsecEndSystem: x509.ExtKeyUsageIPSECEndSystem,
	certificatesv1.UsageIPsecTunnel: x509.ExtKeyUsageIPSECTunnel, certificatesv1.UsageIPsecUser: x509.ExtKeyUsageIPSECUser,
	certificatesv1.UsageTimestamping: x509.ExtKeyUsageTimeStamping, certificatesv1.UsageOCSPSigning: x509.ExtKeyUsageOCSPSigning,
	certificatesv1.UsageMicrosoftSGC: x509.ExtKeyUsageMicrosoftServerGatedCrypto, certificatesv1.UsageNetscapeSGC: x509.ExtKeyUsageNetscapeServerGatedCrypto,
}

func usagesOf(usages []certificatesv1.KeyUsage) (usage x509.KeyUsage, extended []x509.ExtKeyUsage) {
	for _, u := range usages {
		if k, ok := keyUsages[u]; ok {
			usage |= k
		} else if e, ok := extendedUsages[u]; ok {
			extended = append(extended, e)
		}
	}
	return usage, extended
}
