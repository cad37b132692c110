package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// Small plugins, most of them off by default. The reference "Admission Control in Kubernetes"
// describes them.

// always allows or refuses everything.
type always struct {
	base
	refuse bool
}

func newAlways(name string, refuse bool) Plugin {
	return always{base{name, []Operation{Create, Update, Delete, Connect}}, refuse}
}

// Validate implements Validator.
func (p always) Validate(_ context.Context, a *Attributes) error {
	if p.refuse {
		return a.forbid(errors.New("admission control is denying all modifications"))
	}
	return nil
}

// newIdle returns a plugin without effect. It stands for JobValidation, whose field is behind a
// feature gate that is off. Its name can still be enabled and disabled.
func newIdle(name string) Plugin { return base{name: name} }

// denyExternalIPs refuses new external IPs of Services, which can redirect others' traffic.
type denyExternalIPs struct{ base }

func newDenyExternalIPs() Plugin {
	return denyExternalIPs{base{"DenyServiceExternalIPs", []Operation{Create, Update}}}
}

// Validate implements Validator.
func (p denyExternalIPs) Validate(_ context.Context, a *Attributes) error {
	service, ok := a.Object.(*corev1.Service)
	if !ok || a.Subresource != "" {
		return nil
	}
	var before []string
	if old, ok := a.OldObject.(*corev1.Service); ok {
		before = old.Spec.ExternalIPs
	}
	for _, ip := range service.Spec.ExternalIPs {
		if !slices.Contains(before, ip) {
			return a.forbid(errors.New("Use of external IPs is denied by admission control"))
		}
	}
	return nil
}

// trustBundleAttest requires the verb attest on a signer to publish trust anchors for it.
type trustBundleAttest struct {
	base
	authorizer auth.Authorizer
}

func newTrustBundleAttest(z auth.Authorizer) Plugin {
	return trustBundleAttest{base{"ClusterTrustBundleAttest", []Operation{Create, Update}}, z}
}

// Validate implements Validator.
func (p trustBundleAttest) Validate(ctx context.Context, a *Attributes) error {
	bundle, ok := a.Object.(*certificatesv1beta1.ClusterTrustBundle)
	if !ok || bundle.Spec.SignerName == "" {
		return nil
	}
	if old, ok := a.OldObject.(*certificatesv1beta1.ClusterTrustBundle); ok && old.Spec.SignerName == bundle.Spec.SignerName && old.Spec.TrustBundle == bundle.Spec.TrustBundle {
		return nil
	}
	if !mayUseSigner(ctx, p.authorizer, a.User, "attest", bundle.Spec.SignerName) {
		return a.forbid(fmt.Errorf("user not permitted to attest for signerName %q", bundle.Spec.SignerName))
	}
	return nil
}

// extendedResourceToleration adds tolerations for the nodes dedicated to an extended resource to
// the pods that request it.
type extendedResourceToleration struct{ base }

func newExtendedResourceToleration() Plugin {
	return extendedResourceToleration{base{"ExtendedResourceToleration", []Operation{Create, Update}}}
}

// Admit implements Mutator.
func (p extendedResourceToleration) Admit(_ context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	var found []string
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if isExtended(name) && !slices.Contains(found, string(name)) {
					found = append(found, string(name))
				}
			}
		}
	}
	slices.Sort(found)
	for _, name := range found {
		t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		if !tolerates(pod.Spec.Tolerations, t) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

// isExtended reports whether a resource has a domain that is not Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(string(name), "requests.")
}

// autoProvision creates the missing namespace of a created object. Without make, it only refuses
// such writes, as NamespaceLifecycle does.
type autoProvision struct {
	base
	client     client.Interface
	namespaces *client.Lazy[*corev1.Namespace]
	make       bool
}

func newAutoProvision(c client.Interface, namespaces *client.Lazy[*corev1.Namespace]) Plugin {
	return autoProvision{base{"NamespaceAutoProvision", []Operation{Create}}, c, namespaces, true}
}

func newNamespaceExists(namespaces *client.Lazy[*corev1.Namespace]) Plugin {
	return autoProvision{base{"NamespaceExists", []Operation{Create, Update, Delete}}, nil, namespaces, false}
}

// Admit implements Mutator.
func (p autoProvision) Admit(ctx context.Context, a *Attributes) error {
	if a.Namespace == "" || a.isNamespace() || p.make && a.DryRun {
		return nil
	}
	_, err := p.namespaces.Find(ctx, "", a.Namespace)
	if !p.make || !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.Create(ctx, p.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return err
}
