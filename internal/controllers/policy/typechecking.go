package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/validation/spec"

	admissionpolicy "github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// TypeChecking checks the expressions of ValidatingAdmissionPolicies against the types of the kinds
// they match. It writes the warnings and the checked generation into the status.
var TypeChecking = controller.Starter{Name: typeChecking, Run: runTypeChecking}

const typeChecking = "validatingadmissionpolicy-status-controller"

func runTypeChecking(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*admissionregistrationv1.ValidatingAdmissionPolicy](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open validating admission policies: %w", err)
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:   typeChecking,
		Inputs: []controller.Input{controller.Self(view)},
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			p, ok := view.Get("", key.Name)
			if !ok || p.Status.ObservedGeneration == p.Generation {
				return controller.Result{}, nil
			}
			warnings, err := typeWarnings(ctx, env.Client, p)
			if err != nil {
				return controller.Result{}, fmt.Errorf("check the types of policy %s: %w", p.Name, err)
			}
			p = p.DeepCopy()
			p.Status.ObservedGeneration = p.Generation
			p.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings}
			_, err = client.UpdateStatus(ctx, env.Client, p)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				err = nil // the conflicting change arrives as an event
			}
			return controller.Result{}, err
		},
	}
	return loop.Run(ctx)
}

func typeWarnings(ctx context.Context, c client.Interface, p *admissionregistrationv1.ValidatingAdmissionPolicy) ([]admissionregistrationv1.ExpressionWarning, error) {
	served, err := c.Discovery(ctx)
	// The types of failed groups are unknown and stay unchecked.
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	var kinds []admissionpolicy.Kind
	for _, res := range matchedResources(p, served) {
		kind, err := schemaOf(ctx, c, res)
		if err != nil {
			return nil, err
		}
		if kind != nil {
			kinds = append(kinds, *kind)
		}
		if len(kinds) == admissionpolicy.MaxChecked {
			break
		}
	}
	var params *admissionpolicy.Kind
	if k := p.Spec.ParamKind; k != nil {
		if res, ok := servedKind(schema.FromAPIVersionAndKind(k.APIVersion, k.Kind), served); ok {
			if params, err = schemaOf(ctx, c, res); err != nil {
				return nil, err
			}
		}
	}
	return admissionpolicy.CheckTypes(p, kinds, params)
}

// servedResource is a resource and its kind.
type servedResource struct {
	schema.GroupVersionResource
	kind string
}

// matchedResources returns the resources that the policy names. It skips wildcards, which match too
// much, and subresources, which have kinds of their own.
func matchedResources(p *admissionregistrationv1.ValidatingAdmissionPolicy, served []*metav1.APIResourceList) (out []servedResource) {
	if p.Spec.MatchConstraints == nil {
		return nil
	}
	for _, r := range p.Spec.MatchConstraints.ResourceRules {
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				gv := schema.GroupVersion{Group: group, Version: version}
				for _, resource := range r.Resources {
					if strings.ContainsAny(group+version+resource, "*/") {
						continue
					}
					found, ok := findServed(gv, served, func(r *metav1.APIResource) bool { return r.Name == resource })
					if ok && !slices.Contains(out, found) {
						out = append(out, found)
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b servedResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.kind, b.kind))
	})
	return out
}

func servedKind(gvk schema.GroupVersionKind, served []*metav1.APIResourceList) (servedResource, bool) {
	return findServed(gvk.GroupVersion(), served, func(r *metav1.APIResource) bool { return r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") })
}

func findServed(gv schema.GroupVersion, served []*metav1.APIResourceList, is func(*metav1.APIResource) bool) (servedResource, bool) {
	for _, list := range served {
		if list.GroupVersion != gv.String() {
			continue
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; is(r) {
				return servedResource{gv.WithResource(r.Name), r.Kind}, true
			}
		}
	}
	return servedResource{}, false
}

// schemaOf returns a kind's schema, or nil if it is not known here (kinds of aggregated servers).
func schemaOf(ctx context.Context, c client.Interface, res servedResource) (*admissionpolicy.Kind, error) {
	gvk := res.GroupVersion().WithKind(res.kind)
	if _, builtIn := api.ByResource(res.GroupResource()); builtIn {
		s, err := openapi.Kind(gvk)
		return &admissionpolicy.Kind{GroupVersionKind: gvk, Schema: s}, err
	}
	crd, err := client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, c, "", res.Resource+"."+res.Group)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Name == res.Version && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			s, err := customSchema(v.Schema.OpenAPIV3Schema)
			return &admissionpolicy.Kind{GroupVersionKind: gvk, Schema: s}, err
		}
	}
	return nil, nil
}

// customSchema returns a custom kind's schema, completed by the fields of every object.
func customSchema(v1 *apiextensionsv1.JSONSchemaProps) (*spec.Schema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, internal, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	s := structural.ToKubeOpenAPI()
	if s == nil {
		return nil, errors.New("the kind has no schema")
	}
	metadata, err := openapi.ObjectMeta()
	if err != nil {
		return nil, err
	}
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	s.Properties["apiVersion"], s.Properties["kind"], s.Properties["metadata"] = *spec.StringProperty(), *spec.StringProperty(), *metadata
	return s, nil
}
