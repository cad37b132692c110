package loadbalancer

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// poolResource is the custom resource of pools.
var poolResource = schema.GroupVersionResource{Group: "knarr.dev", Version: "v1alpha1", Resource: "loadbalancerpools"}

// openPools creates the definition of LoadBalancerPools if it is missing, and opens their View. It
// returns nil when ctx ends.
func openPools(ctx context.Context, c client.Interface) (client.View, error) {
	if _, err := client.Create(ctx, c, definition()); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create the definition of LoadBalancerPools: %w", err)
	}
	for {
		d, err := client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, c, "", poolResource.GroupResource().String())
		if err == nil && established(d) {
			var view client.View
			if view, err = c.View(ctx, poolResource, client.Scope{}); err == nil {
				return view, nil
			}
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
			return nil, fmt.Errorf("open LoadBalancerPools: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func established(d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	list := func(description string, most int64) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "array", Description: description, MaxItems: &most, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}}
	}
	fewest := int64(1)
	addresses := list("Ranges of addresses: FIRST-LAST, a CIDR, or an address.", maxRanges)
	addresses.MinItems = &fewest
	requirement := apiextensionsv1.JSONSchemaProps{Type: "object", Required: []string{"key", "operator"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"key": text, "operator": text, "values": list("Values of the label.", 256),
	}}
	selector := apiextensionsv1.JSONSchemaProps{Type: "object", Description: "Selects Services by their labels; empty selects all.", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"matchLabels":      {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &text}},
		"matchExpressions": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &requirement}},
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: poolResource.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: poolResource.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: poolResource.Resource, Singular: "loadbalancerpool", Kind: "LoadBalancerPool", ListKind: "LoadBalancerPoolList", ShortNames: []string{"lbpool"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: poolResource.Version, Served: true, Storage: true,
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Addresses", Type: "string", JSONPath: ".spec.addresses"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Description: "Addresses for Services of type LoadBalancer.", Required: []string{"spec"},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Required: []string{"addresses"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"addresses": addresses, "namespaces": list("Namespaces whose Services use the pool; empty means all.", 256), "serviceSelector": selector,
					}}},
				}},
			}},
		},
	}
}
