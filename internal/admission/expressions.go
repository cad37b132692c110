package admission

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cel"
)

// Request returns the write in the API's form for webhooks and expressions, without the objects.
func (v *Versioned) Request() *admissionv1.AdmissionRequest {
	dryRun := v.DryRun
	r := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(v.Form.Kind), Resource: metav1.GroupVersionResource(v.Form.Resource), SubResource: v.Subresource,
		RequestKind: (*metav1.GroupVersionKind)(&v.Kind), RequestResource: (*metav1.GroupVersionResource)(&v.Resource), RequestSubResource: v.Subresource,
		Name: v.Name, Namespace: v.Namespace, Operation: admissionv1.Operation(v.Operation), UserInfo: auth.UserInfo(v.User), DryRun: &dryRun,
	}
	if v.Options != nil {
		r.Options = runtime.RawExtension{Object: withKind(v.Options)}
	}
	return r
}

// withKind sets the TypeMeta of options.
func withKind(options runtime.Object) runtime.Object {
	name := ""
	switch options.(type) {
	case *metav1.CreateOptions:
		name = "CreateOptions"
	case *metav1.UpdateOptions:
		name = "UpdateOptions"
	case *metav1.DeleteOptions:
		name = "DeleteOptions"
	default:
		return options
	}
	out := shallowCopy(options)
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: metav1.GroupName, Version: "v1", Kind: name})
	return out
}

// Expressions returns the write's variables for CEL. If namespace is nil, namespaceObject is null.
func (v *Versioned) Expressions(z auth.Authorizer, namespace func() *corev1.Namespace) cel.Input {
	if namespace == nil {
		namespace = func() *corev1.Namespace { return nil }
	}
	in := cel.Input{
		Object: cel.OfObject(v.Object), OldObject: cel.OfObject(v.OldObject), Request: cel.OfRequest(v.Request), Namespace: cel.OfNamespace(namespace),
	}
	if z != nil {
		who := &user.DefaultInfo{Name: v.User.Name, UID: v.User.UID, Groups: v.User.Groups, Extra: v.User.Extra}
		in.Authorizer = cel.Once(func() any { return library.NewAuthorizerVal(who, celAuthorizer{z}) })
		in.RequestResource = cel.Once(func() any { return library.NewResourceAuthorizerVal(who, celAuthorizer{z}, requestResource{v}) })
	}
	return in
}

// requestResource is the resource that CEL's authorizer.requestResource checks.
type requestResource struct{ *Versioned }

func (r requestResource) GetName() string                          { return r.Name }
func (r requestResource) GetNamespace() string                     { return r.Namespace }
func (r requestResource) GetResource() schema.GroupVersionResource { return r.Resource }
func (r requestResource) GetSubresource() string                   { return r.Subresource }

// celAuthorizer adapts our authorizer to the CEL library.
type celAuthorizer struct{ auth.Authorizer }

// Authorize implements authorizer.Authorizer of k8s.io/apiserver.
func (z celAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := auth.Attributes{Verb: a.GetVerb()}
	if u := a.GetUser(); u != nil {
		asked.User = auth.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	}
	if a.IsResourceRequest() {
		asked.Namespace, asked.Group, asked.Version = a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion()
		asked.Resource, asked.Subresource, asked.Name = a.GetResource(), a.GetSubresource(), a.GetName()
		if requirements, err := a.GetFieldSelector(); err == nil {
			var parts []string
			for _, r := range requirements {
				parts = append(parts, r.Field+string(r.Operator)+r.Value)
			}
			asked.FieldSelector = strings.Join(parts, ",")
		}
		if requirements, err := a.GetLabelSelector(); err == nil {
			var parts []string
			for _, r := range requirements {
				parts = append(parts, r.String())
			}
			asked.LabelSelector = strings.Join(parts, ",")
		}
	} else {
		asked.Path = a.GetPath()
	}
	decision, reason, err := z.Authorizer.Authorize(ctx, asked)
	switch decision {
	case auth.Allow:
		return authorizer.DecisionAllow, reason, err
	case auth.Deny:
		return authorizer.DecisionDeny, reason, err
	}
	return authorizer.DecisionNoOpinion, reason, err
}
