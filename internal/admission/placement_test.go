package admission

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSettingsSelectNodesForNamespacesWithoutAnnotation(t *testing.T) {
	const conflict, notAllowed = "pod node label selector conflicts with its namespace node label selector", "pod node label selector labels conflict with its namespace whitelist"
	for name, tc := range map[string]struct {
		annotations, settings, asked, want map[string]string
		refused                            string
	}{
		"the cluster's selector":                            {nil, map[string]string{clusterDefault: "a=b"}, map[string]string{"x": "y"}, map[string]string{"a": "b", "x": "y"}, ""},
		"the cluster's selector and the pod's":              {nil, map[string]string{clusterDefault: "a=b"}, map[string]string{"a": "c"}, nil, conflict},
		"the namespace's selector instead of the cluster's": {map[string]string{annotationNodeSelector: "z=1"}, map[string]string{clusterDefault: "a=b"}, nil, map[string]string{"z": "1"}, ""},
		"an empty selector of the namespace":                {map[string]string{annotationNodeSelector: ""}, map[string]string{clusterDefault: "a=b"}, nil, nil, ""},
		"an allowed label":                                  {nil, map[string]string{"ns": "a=b,c=d"}, map[string]string{"c": "d"}, map[string]string{"c": "d"}, ""},
		"a label with a forbidden value":                    {nil, map[string]string{"ns": "a=b,c=d"}, map[string]string{"c": "x"}, nil, notAllowed},
		"a forbidden label":                                 {nil, map[string]string{"ns": "a=b", clusterDefault: "x=y"}, nil, nil, notAllowed},
		"the setting of another namespace":                  {nil, map[string]string{"other": "a=b"}, map[string]string{"c": "x"}, map[string]string{"c": "x"}, ""},
		"an invalid selector":                               {map[string]string{annotationNodeSelector: "a in (b)"}, nil, nil, nil, "invalid selector: [a in (b)]"},
	} {
		t.Run(name, func(t *testing.T) {
			config := enable("PodNodeSelector")
			config.Files.NodeSelectors = tc.settings
			pod := testPod()
			pod.Spec.NodeSelector = tc.asked
			err := passes(t, pod, config, namespaceWith(tc.annotations))
			if tc.refused != "" {
				wantRefusal(t, err, tc.refused)
			} else if err != nil || !maps.Equal(pod.Spec.NodeSelector, tc.want) {
				t.Errorf("%v, %v", pod.Spec.NodeSelector, err)
			}
		})
	}
}

func TestSettingsRestrictTolerationsOfNamespacesWithoutAnnotation(t *testing.T) {
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
	}
	settings := Tolerations{
		Default: []corev1.Toleration{exists("d")},
		Allowed: []corev1.Toleration{exists("d"), exists("w"), exists(corev1.TaintNodeNotReady), exists(corev1.TaintNodeUnreachable)},
	}
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Mi")}}
	const refused = "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist"
	for name, tc := range map[string]struct {
		annotations map[string]string
		asked       []corev1.Toleration
		resources   corev1.ResourceRequirements
		want        []string
		refused     string
	}{
		"the cluster's default":                             {want: []string{"d"}},
		"an allowed toleration":                             {asked: []corev1.Toleration{exists("w")}, want: []string{"w", "d"}},
		"a forbidden toleration":                            {asked: []corev1.Toleration{exists("x")}, refused: refused},
		"a toleration that a default covers":                {asked: []corev1.Toleration{{Key: "d", Value: "v", Effect: corev1.TaintEffectNoExecute}}, want: []string{"d"}},
		"annotations with empty lists":                      {annotations: map[string]string{annotationDefaultTolerations: "", annotationAllowedTolerations: "[]"}, asked: []corev1.Toleration{exists("x")}, want: []string{"x"}},
		"the namespace's default":                           {annotations: map[string]string{annotationDefaultTolerations: `[{"key":"n","operator":"Exists"}]`}, refused: refused},
		"memory pressure, checked against the allowed ones": {resources: limits, refused: refused},
		"memory pressure": {resources: limits, annotations: map[string]string{annotationDefaultTolerations: "", annotationAllowedTolerations: ""},
			want: []string{corev1.TaintNodeMemoryPressure}},
		"invalid JSON": {annotations: map[string]string{annotationAllowedTolerations: "[{"}, refused: "unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			config := enable("PodTolerationRestriction")
			config.Files.Tolerations = settings
			pod := testPod()
			pod.Spec.Tolerations, pod.Spec.Containers[0].Resources = tc.asked, tc.resources
			err := passes(t, pod, config, namespaceWith(tc.annotations))
			if tc.refused != "" {
				wantRefusal(t, err, tc.refused)
				return
			}
			var keys []string
			for _, tol := range pod.Spec.Tolerations {
				if tol.Key != corev1.TaintNodeNotReady && tol.Key != corev1.TaintNodeUnreachable {
					keys = append(keys, tol.Key)
				}
			}
			if err != nil || !slices.Equal(keys, tc.want) {
				t.Errorf("%v, %v", pod.Spec.Tolerations, err)
			}
		})
	}
}

func TestLimitedResourcesNeedAQuota(t *testing.T) {
	in := func(classes ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: classes}
	}
	files := Files{Limited: []LimitedResource{
		{Resource: "pods", MatchScopes: []corev1.ScopedResourceSelectorRequirement{in("dear")}},
		{Resource: "pods", MatchContains: []string{"requests.cpu"}},
		{APIGroup: "apps", Resource: "pods", MatchContains: []string{"pods"}},
	}}
	one := corev1.ResourceList{"cpu": resource.MustParse("1")}
	quota := func(name string, scopes ...corev1.ScopedResourceSelectorRequirement) *corev1.ResourceQuota {
		hard := corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("5")}
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		if len(scopes) > 0 {
			q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: scopes}
		}
		q.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("0")}}
		return q
	}
	const scope, consume = "insufficient quota to match these scopes: [{PriorityClass In [dear]}]", "insufficient quota to consume: requests.cpu"
	for name, tc := range map[string]struct {
		class   string
		asked   corev1.ResourceList
		quota   *corev1.ResourceQuota
		refused string
	}{
		"an unlimited class":                                 {"cheap", nil, nil, ""},
		"a limited class without a quota":                    {"dear", nil, nil, scope},
		"a quota with its scope":                             {"dear", nil, quota("pods", in("dear")), ""},
		"a quota with its scope and others":                  {"dear", nil, quota("pods", in("dear", "cheap")), ""},
		"a quota with another scope":                         {"dear", nil, quota("pods", in("cheap")), scope},
		"a quota with its scope and one that does not match": {"dear", nil, quota("pods", in("dear"), corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeTerminating, Operator: corev1.ScopeSelectorOpExists}), ""},
		"a limited resource without a quota":                 {"cheap", one, nil, consume},
		"a quota for the resource":                           {"cheap", one, quota("requests.cpu"), ""},
		"a quota for another resource":                       {"cheap", one, quota("requests.memory"), consume},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.PriorityClassName, pod.Spec.Containers[0].Resources.Requests = tc.class, tc.asked
			if tc.quota != nil && tc.quota.Spec.Hard.Name("requests.memory", resource.DecimalSI).Sign() > 0 {
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1")}
			}
			config := Config{Files: files, Disable: []string{"Priority"}}
			var err error
			if tc.quota == nil {
				err = passes(t, pod, config, namespaceWith(nil))
			} else {
				err = passes(t, pod, config, namespaceWith(nil), tc.quota)
			}
			if tc.refused != "" {
				wantRefusal(t, err, tc.refused)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
