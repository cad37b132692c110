package custom

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/api"
)

type (
	crd       = apiextensionsv1.CustomResourceDefinition
	condition = apiextensionsv1.CustomResourceDefinitionCondition
)

// MarkDeleted marks a definition as deleted. Its finalizer keeps it until its objects are removed.
func MarkDeleted(c *crd, now metav1.Time) {
	c.DeletionTimestamp = &now
	if !apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer) {
		c.Finalizers = append(c.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	set(c, now, apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue, "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
}

// Deleting records the progress of removing the definition's objects.
func Deleting(c *crd, now metav1.Time, status apiextensionsv1.ConditionStatus, reason, message string) {
	set(c, now, apiextensionsv1.Terminating, status, reason, message)
}

// Deleted removes the finalizer that keeps the definition.
func Deleted(c *crd) {
	apihelpers.CRDRemoveFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// Cleans reports whether the definition waits for the removal of its objects.
func Cleans(c *crd) bool {
	return c.DeletionTimestamp != nil && apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// Established reports whether the definition is served, or was served before.
func Established(c *crd) bool { return established(c) }

// Reconcile sets the definition's accepted names and its conditions. others are (outlines of) the
// definitions of the same group; the definition itself may be among them.
func Reconcile(c *crd, others []*crd, now metav1.Time) {
	checkApproval(c, now)
	if c.DeletionTimestamp == nil {
		acceptNames(c, others, now)
	}
	checkStructure(c, now)
}

func set(c *crd, now metav1.Time, what apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, reason, message string) {
	apihelpers.SetCRDCondition(c, condition{Type: what, Status: status, Reason: reason, Message: message, LastTransitionTime: now})
}

// names has the accepted names of the group's other definitions.
type names struct{ resources, kinds map[string]bool }

func takenNames(c *crd, others []*crd) names {
	n := names{resources: map[string]bool{}, kinds: map[string]bool{}}
	for _, o := range others {
		if o.Name == c.Name || o.Spec.Group != c.Spec.Group {
			continue
		}
		a := &o.Status.AcceptedNames
		for _, name := range append([]string{a.Plural, a.Singular}, a.ShortNames...) {
			n.resources[name] = true
		}
		n.kinds[a.Kind], n.kinds[a.ListKind] = true, true
	}
	delete(n.resources, "")
	delete(n.kinds, "")
	return n
}

// acceptNames accepts the definition's names unless another definition of the group has them. A
// definition that once had all of its names stays established.
func acceptNames(c *crd, others []*crd, now metav1.Time) {
	taken, wanted, got := takenNames(c, others), &c.Spec.Names, &c.Status.AcceptedNames
	reason, message := "", ""
	take := func(into *string, name, conflict string, in map[string]bool) {
		if in[name] {
			reason, message = conflict, fmt.Sprintf("%q is already in use", name)
			return
		}
		*into = name
	}
	take(&got.Plural, wanted.Plural, "PluralConflict", taken.resources)
	take(&got.Singular, wanted.Singular, "SingularConflict", taken.resources)
	if inUse := slices.DeleteFunc(slices.Clone(wanted.ShortNames), func(name string) bool { return !taken.resources[name] }); len(inUse) > 0 {
		var all []string
		for _, name := range inUse {
			all = append(all, fmt.Sprintf("%q is already in use", name))
		}
		reason, message = "ShortNamesConflict", strings.Join(all, ", ")
		if len(all) > 1 {
			message = "[" + message + "]"
		}
	} else {
		got.ShortNames = slices.Clone(wanted.ShortNames)
	}
	take(&got.Kind, wanted.Kind, "KindConflict", taken.kinds)
	take(&got.ListKind, wanted.ListKind, "ListKindConflict", taken.kinds)
	got.Categories = slices.Clone(wanted.Categories)
	if reason != "" {
		set(c, now, apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse, reason, message)
		if !established(c) {
			set(c, now, apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "NotAccepted", "not all names are accepted")
		}
		return
	}
	set(c, now, apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionTrue, "NoConflicts", "no conflicts found")
	switch {
	case established(c):
	case hasInvalidCABundle(c):
		set(c, now, apiextensionsv1.Established, apiextensionsv1.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid")
	default:
		set(c, now, apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted")
	}
}

// hasInvalidCABundle reports whether the CA bundle of the conversion webhook is unreadable. If so,
// every call of the webhook would fail.
func hasInvalidCABundle(c *crd) bool {
	conversion := c.Spec.Conversion
	if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil || len(conversion.Webhook.ClientConfig.CABundle) == 0 {
		return false
	}
	_, err := cert.ParseCertsPEM(conversion.Webhook.ClientConfig.CABundle)
	return err != nil
}

// checkStructure reports schemas that are not structural. The API does not accept them any more,
// but an older store may have some.
func checkStructure(c *crd, now metav1.Time) {
	if !c.Spec.PreserveUnknownFields && !apihelpers.IsCRDConditionTrue(c, apiextensionsv1.NonStructuralSchema) {
		return // validation has already checked it
	}
	var errs field.ErrorList
	path := field.NewPath("spec")
	if c.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(path.Child("preserveUnknownFields"), true, "must be false"))
	}
	for i := range c.Spec.Versions {
		props, err := schemaOf(c, c.Spec.Versions[i].Name)
		at := path.Child("versions").Index(i).Child("schema", "openAPIV3Schema")
		switch {
		case err != nil:
			errs = append(errs, field.InternalError(at, err))
			continue
		case props == nil:
			errs = append(errs, field.Required(at, "schemas are required"))
			continue
		}
		s, err := structuralschema.NewStructural(props)
		if err != nil {
			errs = append(errs, field.Invalid(at, "", err.Error()))
			continue
		}
		errs = append(errs, structuralschema.ValidateStructural(at, s)...)
	}
	if len(errs) == 0 {
		apihelpers.RemoveCRDCondition(c, apiextensionsv1.NonStructuralSchema)
		return
	}
	set(c, now, apiextensionsv1.NonStructuralSchema, apiextensionsv1.ConditionTrue, "Violations", api.Together(errs).Error())
}

// checkApproval reports whether a definition in a protected community group is approved.
func checkApproval(c *crd, now metav1.Time) {
	if !apihelpers.IsProtectedCommunityGroup(c.Spec.Group) {
		apihelpers.RemoveCRDCondition(c, apiextensionsv1.KubernetesAPIApprovalPolicyConformant)
		return
	}
	status, reason := apiextensionsv1.ConditionFalse, ""
	state, why := apihelpers.GetAPIApprovalState(c.Annotations)
	switch state {
	case apihelpers.APIApproved:
		status, reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		reason = "MissingAnnotation"
	default:
		reason = "InvalidAnnotation"
	}
	set(c, now, apiextensionsv1.KubernetesAPIApprovalPolicyConformant, status, reason, why)
}

// WaitsForNames reports whether some of the definition's names are not accepted.
func WaitsForNames(c *crd) bool {
	return apihelpers.IsCRDConditionFalse(c, apiextensionsv1.NamesAccepted)
}
