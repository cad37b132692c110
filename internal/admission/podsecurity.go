package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	psadmission "k8s.io/pod-security-admission/admission"
	psconfig "k8s.io/pod-security-admission/admission/api"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/client"
)

// podSecurity checks pods against the Pod Security Standard that their namespace's labels select.
type podSecurity struct {
	base
	library *psadmission.Admission
}

func newPodSecurity(m *measure.Metrics, k kinds, settings *psconfig.PodSecurityConfiguration) (Plugin, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("pod security: %w", err)
	}
	if settings == nil {
		privileged := string(psapi.LevelPrivileged)
		settings = &psconfig.PodSecurityConfiguration{Defaults: psconfig.PodSecurityDefaults{
			Enforce: privileged, EnforceVersion: psapi.VersionLatest, Audit: privileged, AuditVersion: psapi.VersionLatest, Warn: privileged, WarnVersion: psapi.VersionLatest,
		}}
	}
	library := &psadmission.Admission{
		Configuration:   settings,
		Evaluator:       evaluator,
		Metrics:         evaluations{m},
		NamespaceGetter: namespaceGetter{k.namespaces},
		PodLister:       podLister{k.pods},
	}
	if err := library.CompleteConfiguration(); err != nil {
		return nil, fmt.Errorf("pod security: %w", err)
	}
	if err := library.ValidateConfiguration(); err != nil {
		return nil, fmt.Errorf("pod security: %w", err)
	}
	return podSecurity{base{"PodSecurity", []Operation{Create, Update}}, library}, nil
}

// Validate implements Validator.
func (p podSecurity) Validate(ctx context.Context, a *Attributes) error {
	gr := a.groupResource()
	if gr != corev1.Resource("namespaces") && !p.library.PodSpecExtractor.HasPodSpec(gr) || a.is("", "pods", "binding") || a.is("", "pods", "eviction") {
		return nil
	}
	response := p.library.Validate(ctx, &psapi.AttributesRecord{
		Name: a.objectName(), Namespace: a.Namespace, Kind: a.Kind, Resource: a.Resource, Subresource: a.Subresource,
		Operation: admissionv1.Operation(a.Operation), Object: a.Object, OldObject: a.OldObject, Username: a.User.Name,
	})
	for _, w := range response.Warnings {
		a.Warn(w)
	}
	for k, v := range response.AuditAnnotations {
		a.Annotate("pod-security.kubernetes.io/"+k, v)
	}
	if response.Allowed {
		return nil
	}
	if response.Result == nil {
		return a.forbid(errors.New("refused by the pod security policy of the namespace"))
	}
	return &apierrors.StatusError{ErrStatus: *response.Result}
}

type namespaceGetter struct {
	namespaces *client.Lazy[*corev1.Namespace]
}

func (g namespaceGetter) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return g.namespaces.Find(ctx, "", name)
}

type podLister struct {
	pods *client.Lazy[*corev1.Pod]
}

func (l podLister) ListPods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	view, err := l.pods.View()
	if err != nil {
		return nil, err
	}
	return view.List(namespace, nil), nil
}

// evaluations counts the library's decisions.
type evaluations struct{ metrics *measure.Metrics }

func (e evaluations) RecordEvaluation(d metrics.Decision, level psapi.LevelVersion, mode metrics.Mode, a psapi.Attributes) {
	operation, resource, subresource := evaluated(a)
	e.metrics.PodSecurity(string(d), string(level.Level), evaluatedVersion(level), string(mode), operation, resource, subresource)
}

// evaluatedVersion returns the metric's label for a version. All future versions share one label,
// because users can invent versions in a namespace's labels.
func evaluatedVersion(level psapi.LevelVersion) string {
	newest := psapi.MajorMinorVersion(int(apiVersion.Major()), int(apiVersion.Minor()))
	switch {
	case level.Level == psapi.LevelPrivileged || level.Version.Latest():
		return psapi.VersionLatest
	case newest.Older(level.Version):
		return "future"
	}
	return level.Version.String()
}

func (e evaluations) RecordExemption(a psapi.Attributes) { e.metrics.PodSecurityExempt(evaluated(a)) }

func (e evaluations) RecordError(fatal bool, a psapi.Attributes) {
	operation, resource, subresource := evaluated(a)
	e.metrics.PodSecurityError(fatal, operation, resource, subresource)
}

// evaluated returns the metric's labels for a write of a pod or of a kind with a pod template.
func evaluated(a psapi.Attributes) (operation, resource, subresource string) {
	resource = "controller"
	if r := a.GetResource(); r.Group == "" && r.Resource == "pods" {
		resource = "pod"
	}
	return strings.ToLower(string(a.GetOperation())), resource, a.GetSubresource()
}
