package resource

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPodsAreWarnedOf(t *testing.T) {
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/old: runtime/default}}, spec: {containers: [{name: c, image: i}], " + spec + "}}\n"
	}
	containers := func(rest string) string {
		return "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {containers: [{name: c, image: i, " + rest + "}]}}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a label of nodes that has another name now", pod("nodeSelector: {beta.kubernetes.io/os: a}"), []string{`template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		{"an affinity to such a label", pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: Exists}]}]}}}"),
			[]string{`template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead`}},
		{"an affinity to no pods", pod("affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}"), []string{"template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"no pods to be spread", pod("topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"), []string{"template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"a volume that does nothing", pod("volumes: [{name: v, storageos: {volumeName: a}}]"), []string{"template.spec.volumes[0].storageOS: deprecated in v1.22, non-functional in v1.25+"}},
		{"a projection of nothing", pod("volumes: [{name: v, projected: {sources: [{}]}}]"), []string{`volume "v" (Projected) has no sources provided`}},
		{"parts of a byte", containers("resources: {limits: {memory: 1500m}, requests: {memory: 1}}"), []string{`template.spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer`}},
		{"a variable twice", containers("env: [{name: A, value: '1'}, {name: A, value: $(A)2}, {name: A, value: '3'}]"), []string{`template.spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`}},
		{"a port twice, and one that may be it", containers("ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP, hostPort: 81}, {containerPort: 80, protocol: UDP}]"), []string{
			"template.spec.containers[0].ports[1]: duplicate port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[0]",
			"template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[1]"}},
		{"a secret without a name, twice", pod("imagePullSecrets: [{name: ''}, {name: ''}]"), []string{`template.spec.imagePullSecrets[1].name: duplicate name ""`, `template.spec.imagePullSecrets[0].name: invalid empty name ""`, `template.spec.imagePullSecrets[1].name: invalid empty name ""`}},
		{"an address twice, and longer than it need be", pod("hostAliases: [{ip: '::0001'}, {ip: '::0001'}]"), []string{`template.spec.hostAliases[1].ip: duplicate ip "::0001"`,
			`template.spec.hostAliases[0].ip: IPv6 address "::0001" should be in RFC 5952 canonical format ("::1")`, `template.spec.hostAliases[1].ip: IPv6 address "::0001" should be in RFC 5952 canonical format ("::1")`}},
		{"less than no time to end", pod("terminationGracePeriodSeconds: -1"), []string{"template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"}},
		{"nothing", pod("hostname: a"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			if got := s.Warnings(obj, nil); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if got := s.Warnings(obj, obj); got != nil {
				t.Errorf("an update that leaves the template alone is told %q", got)
			}
		})
	}
}

func TestProjectionsOfFeaturesThatAreOffAreDropped(t *testing.T) {
	read := func() (*corev1.Pod, *Strategy) {
		obj, s := read(t, "apiVersion: v1\nkind: Pod\nspec: {terminationGracePeriodSeconds: -5, containers: [{name: c, image: i}], volumes: [{name: v, projected: {sources: [{podCertificate: {}}, {clusterTrustBundle: {path: a}}]}}]}\n")
		return obj.(*corev1.Pod), s
	}
	obj, s := read()
	s.PrepareCreate(obj)
	if got := obj.Spec.Volumes[0].Projected.Sources; got[0] != (corev1.VolumeProjection{}) || got[1] != (corev1.VolumeProjection{}) {
		t.Errorf("%+v is kept", got)
	}
	if got := *obj.Spec.TerminationGracePeriodSeconds; got != 1 {
		t.Errorf("a pod has %d seconds to end, want 1", got)
	}
	obj, _ = read()
	old, _ := read()
	s.PrepareUpdate(obj, old)
	if got := obj.Spec.Volumes[0].Projected.Sources; got[0].PodCertificate == nil || got[1].ClusterTrustBundle == nil {
		t.Errorf("of %+v not all is kept, though it was there", got)
	}
}
