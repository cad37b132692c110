package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/client"
)

// Config configures the default chain.
type Config struct {
	// Enable turns on plugins that are off by default; Disable turns plugins off. Both hold names.
	Enable, Disable []string
	// NotReadyToleration and UnreachableToleration are the seconds that pods without such a
	// toleration of their own stay on the node; nil means 300.
	NotReadyToleration, UnreachableToleration *int64
	// Files are the settings of plugins that have settings.
	Files Files
	// Authorizer decides on the permissions that plugins check.
	Authorizer auth.Authorizer
	// Served finds the kinds of owners; nil means the built-in kinds.
	Served Served
	// Roles is used to refuse roles that grant more than their author has; nil leaves the check
	// out.
	Roles *rbac.Authorizer
	// The plugins for webhooks and policies; nil leaves one out.
	MutatingPolicy, MutatingWebhook, ValidatingPolicy, ValidatingWebhook Plugin
	// Architecture compares writes with declared Components and Systems.
	Architecture bool
	// Suffix makes the endings of generated names; nil means random ones.
	Suffix func(n int) string
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// Metrics count the work of the chain; nil turns this off.
	Metrics *measure.Metrics
}

// kinds are the views that plugins look objects up in.
type kinds struct {
	namespaces      *client.Lazy[*corev1.Namespace]
	accounts        *client.Lazy[*corev1.ServiceAccount]
	limitRanges     *client.Lazy[*corev1.LimitRange]
	pods            *client.Lazy[*corev1.Pod]
	nodes           *client.Lazy[*corev1.Node]
	quotas          *client.Lazy[*corev1.ResourceQuota]
	priorityClasses *client.Lazy[*schedulingv1.PriorityClass]
	storageClasses  *client.Lazy[*storagev1.StorageClass]
	claims          *client.Lazy[*corev1.PersistentVolumeClaim]
	volumes         *client.Lazy[*corev1.PersistentVolume]
	csiDrivers      *client.Lazy[*storagev1.CSIDriver]
	ingressClasses  *client.Lazy[*networkingv1.IngressClass]
	runtimeClasses  *client.Lazy[*nodev1.RuntimeClass]
	services        *client.Lazy[*corev1.Service]
	jobs            *client.Lazy[*batchv1.Job]
	workloads       *client.Lazy[*schedulingv1alpha2.Workload]
}

// Default returns upstream's default plugins in upstream's order. The plugins use the client until
// ctx ends; it may read everything.
func Default(ctx context.Context, c client.Interface, config Config) (Chain, error) {
	if config.Authorizer == nil {
		config.Authorizer = auth.Authorizers{}
	}
	if config.Suffix == nil {
		config.Suffix = utilrand.String
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Metrics == nil {
		config.Metrics = measure.New()
	}
	k := kinds{
		namespaces:      client.NewLazy[*corev1.Namespace](ctx, c, nil),
		accounts:        client.NewLazy[*corev1.ServiceAccount](ctx, c, nil),
		limitRanges:     client.NewLazy[*corev1.LimitRange](ctx, c, nil),
		pods:            client.NewLazy[*corev1.Pod](ctx, c, nil),
		nodes:           client.NewLazy[*corev1.Node](ctx, c, nil),
		quotas:          client.NewLazy[*corev1.ResourceQuota](ctx, c, nil),
		priorityClasses: client.NewLazy[*schedulingv1.PriorityClass](ctx, c, nil),
		storageClasses:  client.NewLazy[*storagev1.StorageClass](ctx, c, nil),
		claims:          client.NewLazy[*corev1.PersistentVolumeClaim](ctx, c, nil),
		volumes:         client.NewLazy[*corev1.PersistentVolume](ctx, c, nil),
		csiDrivers:      client.NewLazy[*storagev1.CSIDriver](ctx, c, nil),
		ingressClasses:  client.NewLazy[*networkingv1.IngressClass](ctx, c, nil),
		runtimeClasses:  client.NewLazy[*nodev1.RuntimeClass](ctx, c, nil),
		services:        client.NewLazy[*corev1.Service](ctx, c, nil),
		jobs:            client.NewLazy[*batchv1.Job](ctx, c, nil),
		workloads:       client.NewLazy[*schedulingv1alpha2.Workload](ctx, c, nil),
	}
	security, err := newPodSecurity(config.Metrics, k, config.Files.PodSecurity)
	if err != nil {
		return Chain{}, err
	}
	events, err := newEventRateLimit(config.Files.EventLimits)
	if err != nil {
		return Chain{}, err
	}
	if events == nil && slices.Contains(config.Enable, "EventRateLimit") {
		return Chain{}, errors.New("admission plugin EventRateLimit needs limits: name them in the file of --admission-control-config-file")
	}
	images, err := newImagePolicy(config.Files.ImagePolicy, config.Now)
	if err != nil {
		return Chain{}, err
	}
	if config.Files.ImagePolicy == nil && slices.Contains(config.Enable, "ImagePolicyWebhook") {
		return Chain{}, errors.New("admission plugin ImagePolicyWebhook needs a server: name it in the file of --admission-control-config-file")
	}
	all := []Plugin{
		newAlways("AlwaysAdmit", false),
		newAutoProvision(c, k.namespaces),
		newNamespaceLifecycle(k.namespaces),
		newNamespaceExists(k.namespaces),
		newLimitAntiAffinity(),
		newLimitRanger(k.limitRanges),
		newServiceAccount(k.accounts, config.Suffix),
		newNodeRestriction(k, config.Authorizer, config.Now),
		newTaintNodesByCondition(),
		newAlwaysPullImages(),
		images,
		security,
		newPodNodeSelector(k.namespaces, config.Files.NodeSelectors),
		newPriority(k.priorityClasses),
		newDefaultTolerationSeconds(config.NotReadyToleration, config.UnreachableToleration),
		newPodTolerations(k.namespaces, config.Files.Tolerations),
		events,
		newExtendedResourceToleration(),
		newDefaultStorageClass(k.storageClasses),
		newStorageInUse(),
		newGroupProtection(),
		newOwnerReferences(config.Authorizer, config.Served),
		newClaimResize(k.storageClasses),
		newRuntimeClass(k.runtimeClasses),
		newCertificateApproval(config.Authorizer),
		newCertificateSigning(config.Authorizer),
		newTrustBundleAttest(config.Authorizer),
		newCertificateSubject(),
		newDefaultIngressClass(k.ingressClasses),
		newDenyExternalIPs(),
		newPodTopologyLabels(k.nodes),
		newWorkloadExists(k.workloads),
		newNodeFeatures(k.nodes),
		newIdle("JobValidation"),
		newPodResize(k.nodes),
		config.MutatingPolicy,
		config.MutatingWebhook,
		config.ValidatingPolicy,
		config.ValidatingWebhook,
		newArchitectural(ctx, c, config.Architecture),
		newGrants(config.Roles, config.Authorizer),
		newAdminAccess(k.namespaces),
		newClaimStatus(config.Authorizer),
		newResourceQuota(c, k.quotas, config.Files.Limited, config.Now),
		newAlways("AlwaysDeny", true),
	}
	chosen, err := choose(all, config)
	return NewChain(config.Metrics, chosen...), err
}

// Names are upstream's plugins. Each can be turned on or off.
var Names = []string{
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
	"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyServiceExternalIPs",
	"EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "JobValidation", "LimitPodHardAntiAffinityTopology", "LimitRanger",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", "NamespaceLifecycle",
	"NodeDeclaredFeatureValidator", "NodeRestriction", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize",
	"PodGroupProtection", "PodGroupWorkloadExists", "PodNodeSelector", "PodResizeValidator", "PodSecurity", "PodTolerationRestriction",
	"PodTopologyLabels", "Priority", "ResourceQuota", "RuntimeClass", "ServiceAccount", "StorageObjectInUseProtection",
	"TaintNodesByCondition", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
}

// OffByDefault are the plugins that run only when enabled.
var OffByDefault = []string{
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "DenyServiceExternalIPs", "EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook",
	"LimitPodHardAntiAffinityTopology", "NamespaceAutoProvision", "NamespaceExists", "OwnerReferencesPermissionEnforcement", "PodNodeSelector", "PodTolerationRestriction",
}

// Runs reports whether a plugin runs, given the names of enabled and disabled plugins.
func Runs(plugin string, enable, disable []string) bool {
	on := !slices.Contains(OffByDefault, plugin) || slices.Contains(enable, plugin)
	return on && !slices.Contains(disable, plugin)
}

// choose drops missing and disabled plugins. An unknown name is an error: a misspelt name must not
// silently leave a protection off.
func choose(all []Plugin, config Config) ([]Plugin, error) {
	var both []string
	for _, flag := range []struct {
		name    string
		plugins []string
	}{{"enable-admission-plugins", config.Enable}, {"disable-admission-plugins", config.Disable}} {
		for _, name := range flag.plugins {
			if !slices.Contains(Names, name) {
				return nil, fmt.Errorf("%s plugin %q is unknown; known are %s", flag.name, name, strings.Join(Names, ", "))
			}
		}
	}
	for _, name := range config.Enable {
		if slices.Contains(config.Disable, name) {
			both = append(both, name)
		}
	}
	if len(both) > 0 {
		return nil, fmt.Errorf("%v in enable-admission-plugins and disable-admission-plugins overlapped", both)
	}
	for _, name := range config.Enable {
		if !slices.ContainsFunc(all, func(p Plugin) bool { return p != nil && p.Name() == name }) {
			return nil, fmt.Errorf("admission plugin %q is not in this server", name)
		}
	}
	var chosen []Plugin
	for _, p := range all {
		if p == nil {
			continue
		}
		if Runs(p.Name(), config.Enable, config.Disable) {
			chosen = append(chosen, newMeasured(p, config.Metrics))
		}
	}
	return chosen, nil
}
