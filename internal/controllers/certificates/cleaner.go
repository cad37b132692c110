package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Cleaner deletes old requests: decided ones after an hour, undecided ones after a day, and those
// with an expired certificate. No request is deleted in its first hour, since upstream checks once
// an hour and users expect to see requests for a while.
var Cleaner = controller.Starter{Name: "certificatesigningrequest-cleaner-controller", Account: account, Run: runCleaner}

const (
	keepAtLeast   = time.Hour
	keepDecided   = time.Hour
	keepUndecided = 24 * time.Hour
)

func runCleaner(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*certificatesv1.CertificateSigningRequest](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open certificate signing requests: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   "certificatesigningrequest-cleaner-controller",
		Inputs: []controller.Input{controller.Self(view)},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			csr, ok := view.Get("", key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			if rest := keepUntil(csr).Sub(env.Now()); rest > 0 {
				return controller.Result{After: rest}, nil
			}
			err := client.Delete[*certificatesv1.CertificateSigningRequest](ctx, env.Client, "", key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &csr.UID}})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return controller.Result{}, err
		},
	}
	return loop.Run(ctx)
}

// keepUntil returns the time when the request may be deleted.
func keepUntil(csr *certificatesv1.CertificateSigningRequest) time.Time {
	end := csr.CreationTimestamp.Add(keepUndecided)
	for _, c := range csr.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			end = c.LastUpdateTime.Add(keepDecided)
		}
	}
	if block, _ := pem.Decode(csr.Status.Certificate); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	if least := csr.CreationTimestamp.Add(keepAtLeast); end.Before(least) {
		end = least
	}
	return end
}
