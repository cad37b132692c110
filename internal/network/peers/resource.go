package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// Resource is the custom resource of slices.
var Resource = schema.GroupVersionResource{Group: "knarr.dev", Version: "v1alpha1", Resource: "policypeers"}

const (
	kind = "PolicyPeers"
	// GroupLabel of a slice is the ID of its group.
	GroupLabel = "policypeers.knarr.dev/group"
	// LastSuffix ends the name of the slice that is written last when a group is published first.
	LastSuffix = "-0"
	// sliceSize is the maximum number of members of a slice.
	sliceSize = 200
)

// Scope covers the slices of a group.
func Scope(id string) client.Scope { return client.Scope{LabelSelector: GroupLabel + "=" + id} }

// membersOf returns the members of a slice.
func membersOf(slice runtime.Object) []string {
	u, ok := slice.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	members, _, _ := unstructured.NestedStringSlice(u.Object, "members")
	return members
}

// Members are the members of a group. One of its fields is empty.
type Members struct {
	Addresses    []netip.Addr
	Destinations []netip.AddrPort
}

// Read returns the members in a group's slices.
func Read(slices []runtime.Object) (all Members) {
	for _, s := range slices {
		for _, text := range membersOf(s) {
			if a, err := netip.ParseAddr(text); err == nil {
				all.Addresses = append(all.Addresses, a)
			} else if d, err := netip.ParseAddrPort(text); err == nil {
				all.Destinations = append(all.Destinations, d)
			}
		}
	}
	return all
}

// Slice makes a slice of a group.
func Slice(g Group, number int, members []string) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	var group map[string]any
	if err := json.Unmarshal(raw, &group); err != nil {
		return nil, err
	}
	id := g.ID()
	u := &unstructured.Unstructured{Object: map[string]any{"group": group}}
	u.SetGroupVersionKind(Resource.GroupVersion().WithKind(kind))
	u.SetName(fmt.Sprintf("%s-%d", id, number))
	u.SetLabels(map[string]string{GroupLabel: id})
	return u, setMembers(u, members)
}

func setMembers(u *unstructured.Unstructured, members []string) error {
	return unstructured.SetNestedStringSlice(u.Object, members, "members")
}

// open creates the definition if it is missing, and opens the View of all slices. It returns nil
// when ctx ends.
func open(ctx context.Context, c client.Interface) (client.View, error) {
	if err := define(ctx, c); err != nil {
		return nil, err
	}
	for {
		d, err := client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, c, "", Resource.GroupResource().String())
		if err == nil && established(d) {
			var view client.View
			if view, err = c.View(ctx, Resource, client.Scope{}); err == nil {
				return view, nil
			}
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
			return nil, fmt.Errorf("open %s: %w", kind, err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func define(ctx context.Context, c client.Interface) error {
	if _, err := client.Create(ctx, c, definition()); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the definition of %s: %w", kind, err)
	}
	return nil
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
	open, most := true, int64(sliceSize)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: Resource.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: Resource.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: Resource.Resource, Singular: Resource.Resource, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: Resource.Version, Served: true, Storage: true,
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Members", Type: "string", JSONPath: ".members"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Description: "Addresses of the pods that a peer of NetworkPolicies selects. The control plane writes them for the nodes.",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"group":   {Type: "object", Description: "The peer's selectors.", XPreserveUnknownFields: &open},
						"members": {Type: "array", Description: "Addresses, or addresses with the number of the group's named port.", MaxItems: &most, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
					},
				}},
			}},
		},
	}
}
