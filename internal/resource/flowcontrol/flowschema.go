// Package flowcontrol holds the kinds of flowcontrol.apiserver.k8s.io.
package flowcontrol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func FlowSchemaStrategy() *strategy.Strategy {
	s := strategy.WithStatusAndGeneration(true)
	s.Default = strategy.On(defaultFlowSchema)
	s.ValidateCreate = strategy.Checks(validateFlowSchema)
	s.ValidateUpdate = strategy.ChecksBoth(validateFlowSchemaUpdate)
	s.ValidateStatus = strategy.ChecksBoth(validateFlowSchemaUpdate)
	s.RowOrder = func(a, b runtime.Object) int {
		return byPrecedence(a.(*flowcontrolv1.FlowSchema), b.(*flowcontrolv1.FlowSchema))
	}
	s.KeepAllMetadataInStatus()
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), flowSchemaColumns, flowSchemaRow)
}

func defaultFlowSchema(f *flowcontrolv1.FlowSchema) {
	strategy.SetDefault(&f.Spec.MatchingPrecedence, 1000)
}

// Limits of flow control in the API reference; the server limits the number of queues.
const (
	maxMatchingPrecedence = 10000
	maxQueues             = 10 * 1000 * 1000
)

// everything matches all verbs, groups, resources, namespaces or paths. It must be alone in its
// list.
const everything = "*"

func validateFlowSchema(s *flowcontrolv1.FlowSchema) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if s.Spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), s.Spec.MatchingPrecedence, "must be a positive value"))
	}
	if s.Spec.MatchingPrecedence > maxMatchingPrecedence {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), s.Spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %d", maxMatchingPrecedence)))
	}
	if s.Spec.MatchingPrecedence == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), s.Spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if d := s.Spec.DistinguisherMethod; d != nil {
		known := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}
		if !slices.Contains(known, d.Type) {
			errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), d, known))
		}
	}
	level := at.Child("priorityLevelConfiguration", "name")
	if name := s.Spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, validate.Invalids(level, name, apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	for i := range s.Spec.Rules {
		errs = append(errs, validateFlowRule(&s.Spec.Rules[i], at.Child("rules").Index(i))...)
	}
	return append(errs, validateConditionTypes(s.Status.Conditions,
		func(c *flowcontrolv1.FlowSchemaCondition) flowcontrolv1.FlowSchemaConditionType { return c.Type })...)
}

func validateFlowSchemaUpdate(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateFlowSchema(s)
}

// validateConditionTypes checks that each condition has a unique type.
func validateConditionTypes[C any, T ~string](conditions []C, typeOf func(*C) T) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("status", "conditions")
	seen := map[T]bool{}
	for i := range conditions {
		kind, at := typeOf(&conditions[i]), at.Index(i).Child("type")
		if seen[kind] {
			errs = append(errs, field.Duplicate(at, kind))
		}
		seen[kind] = true
		if kind == "" {
			errs = append(errs, field.Required(at, ""))
		}
	}
	return errs
}

func validateFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateFlowSubject(&r.Subjects[i], at.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateFlowResources(&r.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validateFlowPaths(&r.NonResourceRules[i], at.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

// validateFlowSubject checks that only the field of the subject's kind is set.
func validateFlowSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	errs := validate.NotSupportedUnless(s.Kind, at.Child("kind"), flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	if len(errs) > 0 {
		return errs
	}
	part := func(name string, kind flowcontrolv1.SubjectKind, there bool, check func(*field.Path) field.ErrorList) {
		switch child := at.Child(name); {
		case s.Kind == kind && !there:
			errs = append(errs, field.Required(child, fmt.Sprintf("%s is required when subject kind is '%s'", name, kind)))
		case s.Kind == kind:
			errs = append(errs, check(child)...)
		case there:
			errs = append(errs, field.Forbidden(child, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", name, kind)))
		}
	}
	part("serviceAccount", flowcontrolv1.SubjectKindServiceAccount, s.ServiceAccount != nil, func(at *field.Path) field.ErrorList { return validateFlowAccount(s.ServiceAccount, at) })
	part("user", flowcontrolv1.SubjectKindUser, s.User != nil, func(at *field.Path) field.ErrorList { return flowName(s.User.Name, at) })
	part("group", flowcontrolv1.SubjectKindGroup, s.Group != nil, func(at *field.Path) field.ErrorList { return flowName(s.Group.Name, at) })
	return errs
}

func flowName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at.Child("name"), "")}
	}
	return nil
}

func validateFlowAccount(a *flowcontrolv1.ServiceAccountSubject, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case a.Name == "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case a.Name != everything:
		errs = append(errs, validate.Invalids(at.Child("name"), a.Name, apivalidation.ValidateServiceAccountName(a.Name, false))...)
	}
	if a.Namespace == "" {
		return append(errs, field.Required(at.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, validate.Invalids(at.Child("namespace"), a.Namespace, apivalidation.ValidateNamespaceName(a.Namespace, false))...)
}

// flowVerbs are the verbs of resource requests.
var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateFlowResources(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := validateFlowVerbs(r.Verbs, flowVerbs, at.Child("verbs"))
	errs = append(errs, validateFlowList(r.APIGroups, "resource rules must supply at least one api group", at.Child("apiGroups"))...)
	errs = append(errs, validateFlowList(r.Resources, "resource rules must supply at least one resource", at.Child("resources"))...)
	namespaces := at.Child("namespaces")
	if len(r.Namespaces) == 0 && !r.ClusterScope {
		errs = append(errs, field.Required(namespaces, "resource rules that are not cluster scoped must supply at least one namespace"))
	}
	if slices.Contains(r.Namespaces, everything) && len(r.Namespaces) > 1 {
		errs = append(errs, field.Invalid(namespaces, r.Namespaces, "if '*' is present, must not specify other namespaces"))
	}
	for i, n := range r.Namespaces {
		if n != everything {
			for _, m := range apivalidation.ValidateNamespaceName(n, false) {
				errs = append(errs, field.Invalid(namespaces.Index(i), n, "each member of this list must be '*' or a DNS-1123 label; "+m))
			}
		}
	}
	return errs
}

// validateFlowList checks a list that must not be empty and may contain "*" only alone.
func validateFlowList(list []string, missing string, at *field.Path) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, missing)}
	case len(list) > 1 && slices.Contains(list, everything):
		what := map[string]string{"apiGroups": "api groups", "resources": "resources"}[at.String()[strings.LastIndexByte(at.String(), '.')+1:]]
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

func validateFlowVerbs(verbs, known []string, at *field.Path) field.ErrorList {
	if len(verbs) == 0 {
		return field.ErrorList{field.Required(at, "verbs must contain at least one value")}
	}
	if slices.Contains(verbs, everything) {
		if len(verbs) > 1 {
			return field.ErrorList{field.Invalid(at, verbs, "if '*' is present, must not specify other verbs")}
		}
		return nil
	}
	for _, v := range verbs {
		if !slices.Contains(known, v) {
			// Upstream lists these for paths too.
			return field.ErrorList{field.NotSupported(at, verbs, flowVerbs)}
		}
	}
	return nil
}

// pathVerbs are the verbs (HTTP methods) of non-resource requests.
var pathVerbs = []string{"delete", "get", "head", "options", "patch", "post", "put"}

func validateFlowPaths(r *flowcontrolv1.NonResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := validateFlowVerbs(r.Verbs, pathVerbs, at.Child("verbs"))
	urls := at.Child("nonResourceURLs")
	switch {
	case len(r.NonResourceURLs) == 0:
		return append(errs, field.Required(urls, "nonResourceURLs must contain at least one value"))
	case len(r.NonResourceURLs) > 1 && slices.Contains(r.NonResourceURLs, everything):
		return append(errs, field.Invalid(urls, r.NonResourceURLs, "if '*' is present, must not specify other non-resource URLs"))
	case r.NonResourceURLs[0] == everything:
		return errs
	}
	for i, url := range r.NonResourceURLs {
		if err := flowPath(url, urls.Index(i)); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// flowPath checks one path, whose last segment may be "*".
func flowPath(url string, at *field.Path) *field.Error {
	switch {
	case url == "":
		return field.Invalid(at, url, "must not be empty")
	case url == "/":
		return nil
	case !strings.HasPrefix(url, "/"):
		return field.Invalid(at, url, "must start with slash")
	case strings.Contains(url, " "):
		return field.Invalid(at, url, "must not contain white-space")
	case strings.Contains(url, "//"):
		return field.Invalid(at, url, "must not contain double slash")
	}
	if i := strings.IndexByte(url, '*'); i >= 0 && (i != len(url)-1 || !strings.HasSuffix(url, "/*")) {
		return field.Invalid(at, url, "wildcard can only do suffix matching")
	}
	return nil
}

var flowSchemaColumns = columns.Define("Name", "PriorityLevel@spec.priorityLevelConfiguration.name", "MatchingPrecedence@spec.matchingPrecedence", "DistinguisherMethod@spec.distinguisherMethod", "Age",
	"MissingPL=references a broken or non-existent PriorityLevelConfiguration")

func flowSchemaRow(f *flowcontrolv1.FlowSchema, now metav1.Time) []any {
	method, missing := columns.None, "?"
	if f.Spec.DistinguisherMethod != nil {
		method = string(f.Spec.DistinguisherMethod.Type)
	}
	for _, c := range f.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			missing = string(c.Status)
		}
	}
	return []any{f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), method, columns.AgeOf(f, now), missing}
}

// byPrecedence orders flow schemas as requests are matched against them.
func byPrecedence(a, b *flowcontrolv1.FlowSchema) int {
	return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), strings.Compare(a.Name, b.Name))
}
