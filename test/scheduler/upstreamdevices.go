package scheduler

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"

	ours "github.com/knarr-project/knarr/internal/scheduler/framework"
)

// hidden returns an unexported field of a struct, which must be addressable. Upstream's
// DynamicResources shows its results to no other package.
func hidden(v reflect.Value, field string) reflect.Value {
	f := v.FieldByName(field)
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}

// deviceState is the state of upstream's DynamicResources; false if it has none.
func deviceState(state fwk.CycleState) (reflect.Value, bool) {
	data, err := state.Read(fwk.StateKey(names.DynamicResources))
	if err != nil {
		return reflect.Value{}, false // another plugin refused the pod before
	}
	return reflect.ValueOf(data).Elem(), true
}

func claimsIn(state reflect.Value) []*resourcev1.ResourceClaim {
	return hidden(hidden(state, "claims"), "claims").Interface().([]*resourcev1.ResourceClaim)
}

// inTheWay returns the claims whose devices are not usable on some node.
func inTheWay(state fwk.CycleState) (list []string, err error) {
	s, ok := deviceState(state)
	if !ok {
		return nil, nil
	}
	claims := claimsIn(s)
	for i := range hidden(s, "unavailableClaims").Interface().(sets.Set[int]) {
		list = append(list, claims[i].Name)
	}
	// A claim that is left from an earlier attempt always goes.
	for _, claim := range claims {
		if ours.IsExtendedClaim(claim) && len(claim.Spec.Devices.Requests) > 0 && !slices.Contains(list, claim.Name) {
			list = append(list, claim.Name)
		}
	}
	slices.Sort(list)
	return list, nil
}

// devicesFound returns what the claims get on the feasible nodes.
func devicesFound(state fwk.CycleState, feasible []fwk.NodeInfo) (map[string]map[string]string, error) {
	s, ok := deviceState(state)
	if !ok {
		return nil, nil
	}
	claims := slices.DeleteFunc(slices.Clone(claimsIn(s)), func(c *resourcev1.ResourceClaim) bool { return c.Status.Allocation != nil })
	onNodes, found := hidden(s, "nodeAllocations"), map[string]map[string]string{}
	for _, node := range feasible {
		name := node.Node().Name
		at := onNodes.MapIndex(reflect.ValueOf(name))
		if !at.IsValid() {
			continue
		}
		entry := reflect.New(at.Type()).Elem()
		entry.Set(at)
		results := hidden(entry, "allocationResults").Interface().([]resourcev1.AllocationResult)
		if len(results) != len(claims) {
			return nil, fmt.Errorf("%d results for %d claims on %s", len(results), len(claims), name)
		}
		for i, claim := range claims {
			text := allocationText(&results[i])
			if claim.Name == ours.ExtendedClaimName {
				own := hidden(entry, "extendedResourceClaim").Interface().(*resourcev1.ResourceClaim)
				text = extendedText(own, hidden(entry, "containerResourceRequestMappings").Interface().([]corev1.ContainerExtendedResourceRequest), text)
			}
			note(found, name, claim.Name, text)
		}
	}
	return found, nil
}

func note(found map[string]map[string]string, node, claim, text string) {
	if found[node] == nil {
		found[node] = map[string]string{}
	}
	found[node][claim] = text
}

// allocationText formats an allocation. The random IDs of shares are left out.
func allocationText(a *resourcev1.AllocationResult) string {
	a = a.DeepCopy()
	for i := range a.Devices.Results {
		if r := &a.Devices.Results[i]; r.ShareID != nil {
			r.ShareID = ptr.To(types.UID("random"))
		}
	}
	return jsonText(a)
}

// extendedText formats a claim for extended resources with its devices.
func extendedText(claim *resourcev1.ResourceClaim, mappings []corev1.ContainerExtendedResourceRequest, allocation string) string {
	return jsonText(claim.Spec) + " " + jsonText(mappings) + " " + allocation
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
