package admissionregistration

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// anyWebhook stands for validating and mutating webhooks; mutating ones have all fields.
type anyWebhook = admissionregistrationv1.MutatingWebhook

func asMutating(w *admissionregistrationv1.ValidatingWebhook) anyWebhook {
	return anyWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

func allMutating(c *admissionregistrationv1.ValidatingWebhookConfiguration) []anyWebhook {
	all := make([]anyWebhook, len(c.Webhooks))
	for i := range c.Webhooks {
		all[i] = asMutating(&c.Webhooks[i])
	}
	return all
}

func validateValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(allMutating(c), nil)
}

func validateValidatingWebhooksUpdate(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(allMutating(c), allMutating(old))
}

func validateMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(c.Webhooks, nil)
}

func validateMutatingWebhooksUpdate(c, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(c.Webhooks, old.Webhooks)
}

// knownReviews are the supported versions of AdmissionReview.
var knownReviews = []string{"v1", "v1beta1"}

// webhookLeniency lists what an update may keep because the old object had it.
type webhookLeniency struct {
	unknownReviews, sideEffects, duplicateNames bool
	expressions                                 map[string]bool
}

func lenientTo(old []anyWebhook) webhookLeniency {
	l := webhookLeniency{expressions: map[string]bool{}}
	names := map[string]bool{}
	for i := range old {
		w := &old[i]
		if len(w.AdmissionReviewVersions) == 0 || !slices.ContainsFunc(w.AdmissionReviewVersions, func(v string) bool { return slices.Contains(knownReviews, v) }) {
			l.unknownReviews = true
		}
		if w.SideEffects == nil || !harmless(*w.SideEffects) {
			l.sideEffects = true
		}
		if names[w.Name] {
			l.duplicateNames = true
		}
		names[w.Name] = true
		for _, c := range w.MatchConditions {
			l.expressions[c.Expression] = true
		}
	}
	return l
}

func harmless(c admissionregistrationv1.SideEffectClass) bool {
	return c == admissionregistrationv1.SideEffectClassNone || c == admissionregistrationv1.SideEffectClassNoneOnDryRun
}

func validateWebhooks(hooks, old []anyWebhook) field.ErrorList {
	var errs field.ErrorList
	lenient := lenientTo(old)
	names := map[string]bool{}
	for i := range hooks {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(&hooks[i], lenient, at)...)
		if hooks[i].Name == "" {
			continue
		}
		if names[hooks[i].Name] && !lenient.duplicateNames {
			errs = append(errs, field.Duplicate(at.Child("name"), hooks[i].Name))
		}
		names[hooks[i].Name] = true
	}
	return errs
}

func validateWebhook(w *anyWebhook, lenient webhookLeniency, at *field.Path) field.ErrorList {
	errs := validateWebhookName(w.Name, at.Child("name"))
	for i := range w.Rules {
		errs = append(errs, validateAdmissionRule(&w.Rules[i], at.Child("rules").Index(i))...)
	}
	errs = append(errs, validate.OneOfIfSet(w.FailurePolicy, at.Child("failurePolicy"), admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	errs = append(errs, validate.OneOfIfSet(w.MatchPolicy, at.Child("matchPolicy"), admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	errs = append(errs, validateSideEffects(w.SideEffects, lenient.sideEffects, at.Child("sideEffects"))...)
	if t := w.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	if w.NamespaceSelector != nil {
		errs = append(errs, validate.Selector(w.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	if w.ObjectSelector != nil {
		errs = append(errs, validate.Selector(w.ObjectSelector, at.Child("objectSelector"))...)
	}
	errs = append(errs, validateWebhookClient(&w.ClientConfig, at.Child("clientConfig"))...)
	errs = append(errs, validate.OneOfIfSet(w.ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	errs = append(errs, validateMatchConditions(w.MatchConditions, cel.Scope{Authorizer: true}, lenient.expressions, at.Child("matchConditions"))...)
	return append(errs, validateReviewVersions(w.AdmissionReviewVersions, lenient.unknownReviews, at.Child("admissionReviewVersions"))...)
}

// validateWebhookName requires a domain of at least three segments.
func validateWebhookName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return field.ErrorList{field.Invalid(at, name, strings.Join(wrong, ","))}
	}
	if strings.Count(name, ".") < 2 {
		return field.ErrorList{field.Invalid(at, name, "should be a domain with at least three segments separated by dots")}
	}
	return nil
}

func validateSideEffects(c *admissionregistrationv1.SideEffectClass, lenient bool, at *field.Path) field.ErrorList {
	allowed := []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	switch {
	case lenient:
		if c == nil {
			return nil
		}
		allowed = append(allowed, admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	case c == nil:
		return field.ErrorList{field.Required(at, "must specify one of None, NoneOnDryRun")}
	}
	return validate.NotSupportedUnless(*c, at, allowed...)
}

func validateReviewVersions(versions []string, lenient bool, at *field.Path) field.ErrorList {
	known := strings.Join(knownReviews, ", ")
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of "+known)}
	}
	var errs field.ErrorList
	spoken := lenient
	seen := map[string]bool{}
	for i, v := range versions {
		if seen[v] {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		seen[v] = true
		errs = append(errs, validate.Invalids(at.Index(i), v, validation.IsDNS1035Label(v))...)
		spoken = spoken || slices.Contains(knownReviews, v)
	}
	if !spoken {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of "+known))
	}
	return errs
}

func validateWebhookClient(c *admissionregistrationv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return validateWebhookURL(*c.URL, at.Child("url"))
	}
	return validateWebhookService(c.Service, at.Child("service"))
}

func validateWebhookURL(text string, at *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(at, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

func validateWebhookService(s *admissionregistrationv1.ServiceReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "service name is required"))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), "service namespace is required"))
	}
	if s.Port != nil {
		for _, text := range validation.IsValidPortNum(int(*s.Port)) {
			errs = append(errs, field.Invalid(at.Child("port"), *s.Port, "port is not valid: "+text))
		}
	}
	if s.Path == nil || *s.Path == "" || *s.Path == "/" {
		return errs
	}
	path, at := *s.Path, at.Child("path")
	if !strings.HasPrefix(path, "/") {
		errs = append(errs, field.Invalid(at, path, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, text := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("segment[%d]: %s", i, text)))
		}
	}
	return errs
}
