package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// Small plugins, most of them off by default. What they do is in the reference, "Admission Control in Kubernetes".

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

// newIdle is a plugin for kinds and fields that are behind feature gates which are off by default (PodGroups and Workloads, and gang
// scheduling of Jobs): they are not served, so that there is nothing for it to do. Its name can be given all the same.
func newIdle(name string) Plugin { return base{name: name} }

// denyExternalIPs refuses new external IPs of Services: whoever may set them can take traffic from others.
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

// trustBundleAttest: publishing trust anchors for a signer needs the verb attest on it.
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

// extendedResourceToleration lets pods that ask for an extended resource onto the nodes that are set apart for it.
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

// isExtended: a resource of a domain that is not Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(string(name), "requests.")
}

// podNodeSelector joins the namespace's node selector to each of its pods'.
type podNodeSelector struct {
	base
	namespaces *client.Lazy[*corev1.Namespace]
}

const annotationNodeSelector = "scheduler.alpha.kubernetes.io/node-selector"

func newPodNodeSelector(namespaces *client.Lazy[*corev1.Namespace]) Plugin {
	return podNodeSelector{base{"PodNodeSelector", []Operation{Create}}, namespaces}
}

// Admit implements Mutator.
func (p podNodeSelector) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	namespace, err := p.namespaces.Find(ctx, "", a.Namespace)
	if err != nil {
		return err
	}
	wanted, err := labels.ConvertSelectorToLabelsMap(namespace.Annotations[annotationNodeSelector])
	if err != nil {
		return err
	}
	for key, value := range wanted {
		if have, ok := pod.Spec.NodeSelector[key]; ok && have != value {
			return a.forbid(errors.New("pod node label selector conflicts with its namespace node label selector"))
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	return nil
}

// podTolerations adds the namespace's default tolerations to its pods', and refuses those that it does not allow.
type podTolerations struct {
	base
	namespaces *client.Lazy[*corev1.Namespace]
}

const (
	annotationDefaultTolerations = "scheduler.alpha.kubernetes.io/defaultTolerations"
	annotationAllowedTolerations = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

func newPodTolerations(namespaces *client.Lazy[*corev1.Namespace]) Plugin {
	return podTolerations{base{"PodTolerationRestriction", []Operation{Create, Update}}, namespaces}
}

// Admit implements Mutator.
func (p podTolerations) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok || a.Operation != Create {
		return nil
	}
	extra, err := p.annotated(ctx, a, annotationDefaultTolerations)
	if err != nil {
		return err
	}
	for _, t := range extra {
		if !tolerates(pod.Spec.Tolerations, t) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

// Validate implements Validator.
func (p podTolerations) Validate(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	allowed, err := p.annotated(ctx, a, annotationAllowedTolerations)
	if err != nil || len(allowed) == 0 {
		return err
	}
	for _, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(wider corev1.Toleration) bool { return covers(wider, t) }) {
			return errors.New("pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist")
		}
	}
	return nil
}

// covers says whether one toleration tolerates all that the other does.
func covers(wider, t corev1.Toleration) bool {
	exists := wider.Operator == corev1.TolerationOpExists
	if wider.Key != t.Key && (wider.Key != "" || !exists) || wider.Effect != "" && wider.Effect != t.Effect {
		return false
	}
	if !exists && (t.Operator == corev1.TolerationOpExists || wider.Value != t.Value) {
		return false
	}
	if wider.Effect != corev1.TaintEffectNoExecute || wider.TolerationSeconds == nil {
		return true
	}
	return t.TolerationSeconds != nil && *t.TolerationSeconds <= *wider.TolerationSeconds
}

func (p podTolerations) annotated(ctx context.Context, a *Attributes, key string) (out []corev1.Toleration, err error) {
	namespace, err := p.namespaces.Find(ctx, "", a.Namespace)
	if err != nil {
		return nil, err
	}
	if text := namespace.Annotations[key]; text != "" {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			return nil, fmt.Errorf("annotation %s of namespace %s: %w", key, a.Namespace, err)
		}
	}
	return out, nil
}

// autoProvision makes the namespace of what is created in one that is not there; its twin only refuses such writes, as
// NamespaceLifecycle does, too.
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
