package scheduler

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"

	knarrcel "github.com/knarr-project/knarr/internal/cel"
)

// selects reports whether a selector matches a device.
func selects(t *testing.T, expression string) (bool, error) {
	t.Helper()
	knarrcel.BoundSharedEnvironments()
	selector := newDevices(t.Context(), nil, nil, nil).selectors.GetOrCompile(expression)
	if selector.Error != nil {
		return false, selector.Error
	}
	yes, major, number := true, "1.2.3", int64(7)
	share := true
	matches, _, err := selector.DeviceMatches(t.Context(), cel.Device{
		Driver:                   "d.example.com",
		AllowMultipleAllocations: &share,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"big": {BoolValue: &yes}, "firmware": {VersionValue: &major}, "other.example.com/n": {IntValue: &number}, "model": {StringValue: &major},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
	})
	return matches, err
}

// The library would compute 10 to the power of a thousand million for any user who may create a
// claim. A scheduler in a process of its own has no API server beside it that sets this bound.
func TestSelectorsWithHugeQuantitiesFail(t *testing.T) {
	for expression, want := range map[string]string{
		`device.capacity["d.example.com"].memory.isGreaterThan(quantity("40Gi"))`:        "",
		`quantity("1e-1000000000").isGreaterThan(quantity("1"))`:                         "has an exponent that is not between",
		`quantity("1e" + string(-1000000000)).isGreaterThan(quantity("1"))`:              "has an exponent that is not between",
		`device.driver == "d.example.com" && isQuantity("1e" + string(-1000000000 - 1))`: "no match",
	} {
		matches, err := selects(t, expression)
		switch {
		case want == "" || want == "no match":
			if err != nil || matches != (want == "") {
				t.Errorf("%s: %v, %v", expression, matches, err)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
}

func FuzzSelectors(f *testing.F) {
	for _, s := range []string{
		`device.driver == "d.example.com"`, `device.attributes["d.example.com"].big && device.allowMultipleAllocations`, `cel.bind(d, device.attributes["other.example.com"], d.n > 3)`,
		`device.attributes["d.example.com"].firmware.isGreaterThan(semver("1.0.0"))`, `device.capacity["d.example.com"].memory.compareTo(quantity("1e3")) > 0`,
		`"x".matches("(") || [1, 2].exists(i, i == 3)`, `device.attributes["none"].all(a, a in ["b"])`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if len(expression) <= 4096 {
			_, _ = selects(t, expression)
		}
	})
}
