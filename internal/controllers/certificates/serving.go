package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// servingWait is the time to wait for the address of a Node to appear in the API, which may come
// after the request.
const servingWait = 2 * time.Second

// approveServing approves the serving certificate of a node's agent. The node must be allowed to
// have it (selfnodeserver, knarr's own; upstream leaves these requests to administrators), and
// every name and address in it must be one of the Node's. A node writes the addresses of its Node
// itself, so the request is denied if a name or address is reserved or belongs to another machine.
func approveServing(ctx context.Context, env controller.Env, csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (controller.Result, error) {
	if validateKubeletServing(csr.Spec.Username, request, csr.Spec.Usages) != nil {
		return controller.Result{}, nil // left to an administrator
	}
	allowed, err := isAllowed(ctx, env.Client, csr, "selfnodeserver")
	if err != nil || !allowed {
		return controller.Result{}, err
	}
	name := strings.TrimPrefix(csr.Spec.Username, "system:node:")
	others, err := holdersBeside(ctx, env, name)
	if err != nil {
		return controller.Result{}, fmt.Errorf("certificate signing request %s: %w", csr.Name, err)
	}
	if why := others.refuse(request); why != "" {
		return controller.Result{}, deny(ctx, env, csr, "AddressNotTheNodes", why)
	}
	node, err := client.Get[*corev1.Node](ctx, env.Client, "", name)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, fmt.Errorf("node of certificate signing request %s: %w", csr.Name, err)
	}
	if err != nil || !covers(node, request) {
		return controller.Result{After: servingWait}, nil
	}
	return controller.Result{}, markApproved(ctx, env, csr, "Auto approving kubelet serving certificate: its names are the node's.")
}

func covers(node *corev1.Node, request *x509.CertificateRequest) bool {
	names := []string{node.Name}
	var addresses []net.IP
	for _, a := range node.Status.Addresses {
		if ip := net.ParseIP(a.Address); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, a.Address)
		}
	}
	for _, name := range request.DNSNames {
		if !slices.Contains(names, name) {
			return false
		}
	}
	for _, ip := range request.IPAddresses {
		if !slices.ContainsFunc(addresses, ip.Equal) {
			return false
		}
	}
	return true
}
