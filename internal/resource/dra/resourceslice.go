package dra

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ResourceSliceStrategy() *strategy.Strategy {
	s := strategy.WithGeneration(true)
	s.ValidateCreate = strategy.Checks(validateResourceSlice)
	s.ValidateUpdate = strategy.ChecksBoth(validateResourceSliceUpdate)
	s.Warnings = func(obj, _ runtime.Object) []string {
		driver := obj.(*resourcev1.ResourceSlice).Spec.Driver
		if driver == strings.ToLower(driver) {
			return nil
		}
		return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", driver)}
	}
	s.SetTimes = func(obj runtime.Object, now metav1.Time) {
		setTaintTimes(obj.(*resourcev1.ResourceSlice), now)
	}
	s.PrepareCreate = strategy.On(func(r *resourcev1.ResourceSlice) { dropDeviceLists(r); r.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(r, old *resourcev1.ResourceSlice) {
		// A change of a dropped field counts, too.
		strategy.SetGeneration(r, old, !strategy.Same(r, old, "Spec"))
		dropDeviceLists(r)
	})
	s.FieldNames = []string{resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorDriver}
	s.Fields = func(obj runtime.Object) fields.Set {
		r := obj.(*resourcev1.ResourceSlice)
		set := fields.Set{resourcev1.ResourceSliceSelectorDriver: r.Spec.Driver, resourcev1.ResourceSliceSelectorNodeName: ""}
		if r.Spec.NodeName != nil {
			set[resourcev1.ResourceSliceSelectorNodeName] = *r.Spec.NodeName
		}
		return set
	}
	return strategy.Show(s, resourceSliceColumns, resourceSliceRow)
}

// setTaintTimes sets the time of device taints that have none.
func setTaintTimes(slice *resourcev1.ResourceSlice, now metav1.Time) {
	for i := range slice.Spec.Devices {
		taints := slice.Spec.Devices[i].Taints
		for j := range taints {
			if taints[j].TimeAdded == nil {
				taints[j].TimeAdded = &now
			}
		}
	}
}

// dropDeviceLists clears fields of the features DRAListTypeAttributes and
// DRANodeAllocatableResources, which are off.
func dropDeviceLists(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		d.NodeAllocatableResourceMappings = nil
		for name, a := range d.Attributes {
			a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

var resourceSliceColumns = columns.Define("Name", "Node@spec.nodeName", "Driver@spec.driver", "Pool@spec.pool.name", "Age")

func resourceSliceRow(s *resourcev1.ResourceSlice, now metav1.Time) []any {
	return []any{s.Name, validate.Deref(s.Spec.NodeName), s.Spec.Driver, s.Spec.Pool.Name, columns.AgeOf(s, now)}
}
