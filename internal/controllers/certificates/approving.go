package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Approving approves kubelets' requests for client certificates if the requester is allowed to have
// them. These are nodes that renew their own (selfnodeclient), and bootstrapping machines
// (nodeclient) unless the node's name belongs to another machine.
var Approving = controller.Starter{Name: "certificatesigningrequest-approving-controller", Account: account, Run: runApproving}

func runApproving(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*certificatesv1.CertificateSigningRequest](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open certificate signing requests: %w", err)
	}
	names := &claims{env: env, admitted: map[string]admission{}, now: time.Now}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   "certificatesigningrequest-approving-controller",
		Inputs: []controller.Input{controller.Self(view)},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			csr, ok := view.Get("", key.Name)
			serving := ok && csr.Spec.SignerName == certificatesv1.KubeletServingSignerName
			if !ok || !serving && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(csr.Status.Certificate) > 0 ||
				condition(csr, certificatesv1.CertificateApproved) != nil || condition(csr, certificatesv1.CertificateDenied) != nil {
				return controller.Result{}, nil
			}
			request, err := parse(csr)
			if err != nil {
				return controller.Result{}, controller.Terminal(fmt.Errorf("certificate signing request %s: %w", key.Name, err))
			}
			if serving {
				return approveServing(ctx, env, csr.DeepCopy(), request)
			}
			if validateKubeletClient(request, csr.Spec.Usages) != nil {
				return controller.Result{}, nil // left to an administrator
			}
			return approve(ctx, env, names, csr.DeepCopy(), request)
		},
	}
	return loop.Run(ctx)
}

func approve(ctx context.Context, env controller.Env, names *claims, csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (controller.Result, error) {
	kinds := []struct{ subresource, message string }{{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."}}
	if csr.Spec.Username == request.Subject.CommonName {
		kinds = append([]struct{ subresource, message string }{{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."}}, kinds...)
	}
	for _, k := range kinds {
		allowed, err := isAllowed(ctx, env.Client, csr, k.subresource)
		if err != nil {
			return controller.Result{}, err
		}
		if !allowed {
			continue
		}
		refusal, wait, err := names.judge(ctx, csr, request)
		switch {
		case err != nil:
			return controller.Result{}, err
		case refusal != "":
			return controller.Result{}, deny(ctx, env, csr, "NodeNameTaken", refusal)
		case wait > 0:
			return controller.Result{After: wait}, nil
		}
		return controller.Result{}, markApproved(ctx, env, csr, k.message)
	}
	return controller.Result{}, nil
}

func markApproved(ctx context.Context, env controller.Env, csr *certificatesv1.CertificateSigningRequest, message string) error {
	now := metav1.Now()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message, LastUpdateTime: now, LastTransitionTime: now})
	return writeApproval(ctx, env, csr)
}

func writeApproval(ctx context.Context, env controller.Env, csr *certificatesv1.CertificateSigningRequest) error {
	_, err := env.Client.Update(ctx, certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), csr, metav1.UpdateOptions{}, "approval")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// isAllowed asks whether the requester may create certificatesigningrequests/SUBRESOURCE.
func isAllowed(ctx context.Context, c client.Interface, csr *certificatesv1.CertificateSigningRequest, subresource string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range csr.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "create", Subresource: subresource, Version: "*"},
	}}
	out, err := c.Create(ctx, authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), "", review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("check whether %s may request a node's certificate: %w", csr.Spec.Username, err)
	}
	answer, ok := out.(*authorizationv1.SubjectAccessReview)
	return ok && answer.Status.Allowed, nil
}
