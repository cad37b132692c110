package plugins

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// many is a plugin with several extension points.
type many struct{ plugin }

func (many) Filter(framework.State, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	return nil
}

func (many) Score(framework.State, *framework.PodInfo, *framework.NodeInfo) (int64, *framework.Status) {
	return 0, nil
}

func (many) PreEnqueue(context.Context, *corev1.Pod) *framework.Status { return nil }

// The cases are upstream's tests of multiPoint (pkg/scheduler/framework/runtime and
// apis/config/v1), told again.
func TestPrecedenceOfPlugins(t *testing.T) {
	for name, c := range map[string]struct{ plugins, filters, scores string }{
		"defaults":                          {"{}", "A B", "A=1 B=2"},
		"a new plugin comes last":           {"multiPoint: {enabled: [{name: C}]}", "A B C", "A=1 B=2 C=1"},
		"a new weight keeps the place":      {"multiPoint: {enabled: [{name: A, weight: 7}]}", "A B", "A=7 B=2"},
		"disabled at all points":            {"multiPoint: {disabled: [{name: A}]}", "B", "B=2"},
		"disabled at one point":             {"score: {disabled: [{name: A}]}", "A B", "B=2"},
		"everything disabled at one point":  {"score: {disabled: [{name: '*'}]}", "A B", ""},
		"only the enabled ones":             {"multiPoint: {disabled: [{name: '*'}], enabled: [{name: C}, {name: A}]}", "C A", "C=1 A=1"},
		"a point overrides the weight":      {"score: {enabled: [{name: B, weight: 5}]}", "A B", "B=5 A=1"},
		"a point has a plugin of its own":   {"filter: {enabled: [{name: C}]}", "A B C", "A=1 B=2"},
		"a point replaces the order":        {"filter: {disabled: [{name: '*'}], enabled: [{name: B}, {name: A}]}", "B A", "A=1 B=2"},
		"enabled wins over disabled":        {"multiPoint: {disabled: [{name: A}], enabled: [{name: A, weight: 4}]}", "B A", "B=2 A=4"},
		"overridden ones come first":        {"filter: {enabled: [{name: C}, {name: B}]}", "B A C", "A=1 B=2"},
		"a weight of 0 means 1":             {"score: {enabled: [{name: B, weight: 0}]}", "A B", "B=1 A=1"},
		"disabled defaults, kept elsewhere": {"filter: {disabled: [{name: B}]}", "A", "A=1 B=2"},
	} {
		t.Run(name, func(t *testing.T) {
			var custom configv1.Plugins
			if err := yaml.UnmarshalStrict([]byte(c.plugins), &custom); err != nil {
				t.Fatal(err)
			}
			one, two, s := int32(1), int32(2), "s"
			defaults := &configv1.Plugins{MultiPoint: configv1.PluginSet{Enabled: []configv1.Plugin{{Name: "A", Weight: &one}, {Name: "B", Weight: &two}}}}
			known := Factories{"A": always(many{"A"}), "B": always(many{"B"}), "C": always(many{"C"})}
			p, err := known.Profile(field.NewPath("profiles").Index(0), &configv1.KubeSchedulerProfile{SchedulerName: &s, Plugins: Merge(defaults, &custom)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var filters, scores []string
			for _, f := range p.Filters {
				filters = append(filters, f.Name())
			}
			for _, w := range p.Scores {
				scores = append(scores, w.Name()+"="+string(rune('0'+w.Weight)))
			}
			if !slices.Equal(filters, strings.Fields(c.filters)) || !slices.Equal(scores, strings.Fields(c.scores)) {
				t.Errorf("filters %v, want %s; scores %v, want %s", filters, c.filters, scores, c.scores)
			}
		})
	}
}

func TestFaultsOfPlugins(t *testing.T) {
	for name, c := range map[string]struct{ plugins, want string }{
		"an unknown plugin":     {"filter: {enabled: [{name: D}]}", `profiles[0].plugins.filter.enabled[0].name: Unsupported value: "D": supported values: "A"`},
		"a plugin without it":   {"bind: {enabled: [{name: A}]}", "profiles[0].plugins.bind.enabled[0].name"},
		"a plugin twice":        {"filter: {enabled: [{name: A}, {name: A}]}", "profiles[0].plugins.filter.enabled[1].name: Duplicate"},
		"a placement":           {"placementScore: {enabled: [{name: A}]}", "profiles[0].plugins.placementScore.enabled[0]: Forbidden"},
		"a weight that is less": {"score: {enabled: [{name: A, weight: -1}]}", "weight"},
	} {
		t.Run(name, func(t *testing.T) {
			var custom configv1.Plugins
			if err := yaml.UnmarshalStrict([]byte(c.plugins), &custom); err != nil {
				t.Fatal(err)
			}
			s := "s"
			_, err := Factories{"A": always(many{"A"})}.Profile(field.NewPath("profiles").Index(0), &configv1.KubeSchedulerProfile{SchedulerName: &s, Plugins: &custom}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
