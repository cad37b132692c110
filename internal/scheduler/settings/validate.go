package settings

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
)

// validate checks what upstream checks.
func validate(c *configv1.KubeSchedulerConfiguration) error {
	errs := validateComponent(c)
	if *c.Parallelism <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("parallelism"), *c.Parallelism, "must be greater than 0"))
	}
	if *c.PodInitialBackoffSeconds <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("podInitialBackoffSeconds"), *c.PodInitialBackoffSeconds, "must be greater than 0"))
	}
	if *c.PodMaxBackoffSeconds < *c.PodInitialBackoffSeconds {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), *c.PodMaxBackoffSeconds, "must be greater than or equal to podInitialBackoffSeconds"))
	}
	errs = append(errs, validatePercentage(field.NewPath("percentageOfNodesToScore"), c.PercentageOfNodesToScore)...)
	errs = append(errs, validateProfiles(field.NewPath("profiles"), c.Profiles)...)
	errs = append(errs, validateExtenders(field.NewPath("extenders"), c.Extenders)...)
	return errs.ToAggregate()
}

// validateComponent checks the fields that matter to `knarr scheduler` alone.
func validateComponent(c *configv1.KubeSchedulerConfiguration) (errs field.ErrorList) {
	if c.ClientConnection.Burst < 0 {
		errs = append(errs, field.Invalid(field.NewPath("clientConnection", "burst"), c.ClientConnection.Burst, "must not be negative"))
	}
	le, path := &c.LeaderElection, field.NewPath("leaderElection")
	if !ptr.Deref(le.LeaderElect, true) {
		return errs
	}
	positive := func(name string, seconds float64) {
		if seconds <= 0 {
			errs = append(errs, field.Invalid(path.Child(name), fmt.Sprint(seconds, "s"), "must be greater than 0"))
		}
	}
	positive("leaseDuration", le.LeaseDuration.Seconds())
	positive("renewDeadline", le.RenewDeadline.Seconds())
	positive("retryPeriod", le.RetryPeriod.Seconds())
	if le.LeaseDuration.Duration <= le.RenewDeadline.Duration {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), le.LeaseDuration.Duration.String(), "must be greater than renewDeadline"))
	}
	if le.RenewDeadline.Seconds() <= 1.2*le.RetryPeriod.Seconds() {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), le.RenewDeadline.Duration.String(), "must be greater than 1.2 times retryPeriod"))
	}
	if le.ResourceLock != "leases" {
		errs = append(errs, field.NotSupported(path.Child("resourceLock"), le.ResourceLock, []string{"leases"}))
	}
	return errs
}

func validatePercentage(path *field.Path, percent *int32) field.ErrorList {
	if percent != nil && (*percent < 0 || *percent > 100) {
		return field.ErrorList{field.Invalid(path, *percent, "must be from 0 to 100")}
	}
	return nil
}

// removedPlugins are gone since version v1 of the configuration.
var removedPlugins = sets.New("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")

func validateProfiles(path *field.Path, profiles []configv1.KubeSchedulerProfile) (errs field.ErrorList) {
	seen := map[string]int{}
	for i := range profiles {
		p, at := &profiles[i], path.Index(i)
		name := ptr.Deref(p.SchedulerName, "")
		if name == "" {
			errs = append(errs, field.Required(at.Child("schedulerName"), "pods select a profile by it"))
		} else if first, ok := seen[name]; ok {
			errs = append(errs, field.Duplicate(at.Child("schedulerName"), fmt.Sprintf("%s, as in %s", name, path.Index(first).Child("schedulerName"))))
		} else {
			seen[name] = i
		}
		errs = append(errs, validatePercentage(at.Child("percentageOfNodesToScore"), p.PercentageOfNodesToScore)...)
		errs = append(errs, validatePluginConfig(at.Child("pluginConfig"), p.PluginConfig)...)
		if i > 0 && !equality.Semantic.DeepEqual(profiles[0].Plugins.QueueSort, p.Plugins.QueueSort) {
			errs = append(errs, field.Invalid(at.Child("plugins", "queueSort"), enabledNames(p.Plugins.QueueSort), "must be the same in all profiles, as they share one queue"))
		}
	}
	return errs
}

func enabledNames(set configv1.PluginSet) []string {
	names := []string{}
	for _, p := range set.Enabled {
		names = append(names, p.Name)
	}
	return names
}

func validatePluginConfig(path *field.Path, list []configv1.PluginConfig) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i := range list {
		at, name := path.Index(i), list[i].Name
		switch {
		case name == "":
			errs = append(errs, field.Required(at.Child("name"), "the plugin whose arguments these are"))
		case seen.Has(name):
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		case removedPlugins.Has(name):
			errs = append(errs, field.Invalid(at.Child("name"), name, "this plugin is removed; NodeVolumeLimits has its task"))
		}
		seen.Insert(name)
		errs = append(errs, validateArgs(at.Child("args"), list[i].Args.Object)...)
	}
	return errs
}

func validateExtenders(path *field.Path, extenders []configv1.Extender) (errs field.ErrorList) {
	binder := -1
	managed := sets.New[string]()
	for i := range extenders {
		e, at := &extenders[i], path.Index(i)
		if e.URLPrefix == "" {
			errs = append(errs, field.Required(at.Child("urlPrefix"), "where the extender answers"))
		}
		if e.PrioritizeVerb != "" && e.Weight <= 0 {
			errs = append(errs, field.Invalid(at.Child("weight"), e.Weight, "must be greater than 0 with prioritizeVerb"))
		}
		if e.BindVerb != "" {
			if binder >= 0 {
				errs = append(errs, field.Invalid(at.Child("bindVerb"), e.BindVerb, fmt.Sprintf("only one extender can bind, and %s does", path.Index(binder))))
			}
			binder = i
		}
		for j, r := range e.ManagedResources {
			at := at.Child("managedResources").Index(j).Child("name")
			errs = append(errs, validateExtendedResource(at, r.Name)...)
			if managed.Has(r.Name) {
				errs = append(errs, field.Duplicate(at, r.Name))
			}
			managed.Insert(r.Name)
		}
	}
	return errs
}

// validateExtendedResource checks the name of a resource that is not Kubernetes' own.
func validateExtendedResource(path *field.Path, name string) (errs field.ErrorList) {
	for _, message := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	quota := corev1.DefaultResourceRequestsPrefix + name
	native := !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
	if len(errs) == 0 && (native || strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) || len(validation.IsQualifiedName(quota)) > 0) {
		errs = append(errs, field.Invalid(path, name, "must be an extended resource such as example.com/gpu"))
	}
	return errs
}
