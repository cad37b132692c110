package pods_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestPodsAreWarnedOf(t *testing.T) {
	containers := func(rest string) string {
		return "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {containers: [{name: c, image: i, " + rest + "}]}}\n"
	}
	annotated := func(container, profile, spec string) string {
		return "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: {annotations: {" + corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container + ": " + profile + "}}, spec: {containers: [{name: c, image: i}], " + spec + "}}\n"
	}
	pod := func(spec string) string { return annotated("old", "runtime/default", spec) }
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a renamed node label", pod("nodeSelector: {beta.kubernetes.io/os: a}"), []string{`template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		{"an affinity to a renamed node label", pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: Exists}]}]}}}"),
			[]string{`template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead`}},
		{"a preferred term with an invalid label value", pod("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: ['-1']}]}}]}}"),
			[]string{`template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: -1 is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		{"a pod affinity without selector", pod("affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}"), []string{"template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"a spread constraint without selector", pod("topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"), []string{"template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"a volume source without effect", pod("volumes: [{name: v, storageos: {volumeName: a}}]"), []string{"template.spec.volumes[0].storageOS: deprecated in v1.22, non-functional in v1.25+"}},
		{"an empty projection", pod("volumes: [{name: v, projected: {sources: [{}]}}]"), []string{`volume "v" (Projected) has no sources provided`}},
		{"fractions of a byte", containers("resources: {limits: {memory: 1500m}, requests: {memory: 1}}"), []string{`template.spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer`}},
		{"a repeated variable", containers("env: [{name: A, value: '1'}, {name: A, value: $(A)2}, {name: A, value: '3'}, {name: A, value: $(A)}]"), []string{`template.spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`,
			`template.spec.containers[0].env[3]: hides previous definition of "A", which may be dropped when using apply`}},
		{"a repeated port, and an ambiguous one", containers("ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP, hostPort: 81}, {containerPort: 80, protocol: UDP}]"), []string{
			"template.spec.containers[0].ports[1]: duplicate port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[0]",
			"template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[1]"}},
		{"a host port on all addresses, on one and on another", containers("ports: [{containerPort: 80, hostPort: 81, hostIP: 10.0.0.1}, {containerPort: 80, hostPort: 81, hostIP: 10.0.0.2}, {containerPort: 80, hostPort: 81}, {containerPort: 80, hostPort: 82}, {containerPort: 80, hostIP: 10.0.0.1}]"), []string{
			"template.spec.containers[0].ports[2]: dangerously ambiguous port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[2]: dangerously ambiguous port definition with template.spec.containers[0].ports[1]",
			"template.spec.containers[0].ports[4]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}",
			"template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[1]",
			"template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[2]", "template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[3]"}},
		{"a host port before and after a container port", "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {initContainers: [{name: i, image: i, ports: [{containerPort: 80, hostPort: 81}]}], containers: [{name: c, image: i, ports: [{containerPort: 80}, {containerPort: 80, hostPort: 81}]}]}}\n", []string{
			"template.spec.containers[0].ports[0]: overlapping port definition with template.spec.initContainers[0].ports[0]", "template.spec.containers[0].ports[1]: duplicate port definition with template.spec.initContainers[0].ports[0]",
			"template.spec.containers[0].ports[1]: overlapping port definition with template.spec.containers[0].ports[0]"}},
		{"an AppArmor annotation instead of the field", annotated("c", "runtime/default", ""), []string{`template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		{"an AppArmor annotation that differs from the pod's profile", annotated("c", "localhost/a", "securityContext: {appArmorProfile: {type: RuntimeDefault}}"), []string{`template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		{"an AppArmor annotation equal to the pod's profile", annotated("c", "localhost/a", "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}"), nil},
		{"two pull secrets without name", pod("imagePullSecrets: [{name: ''}, {name: ''}]"), []string{`template.spec.imagePullSecrets[1].name: duplicate name ""`, `template.spec.imagePullSecrets[0].name: invalid empty name ""`, `template.spec.imagePullSecrets[1].name: invalid empty name ""`}},
		{"a repeated address in a long form", pod("hostAliases: [{ip: '::0001'}, {ip: '::0001'}]"), []string{`template.spec.hostAliases[1].ip: duplicate ip "::0001"`,
			`template.spec.hostAliases[0].ip: IPv6 address "::0001" should be in RFC 5952 canonical format ("::1")`, `template.spec.hostAliases[1].ip: IPv6 address "::0001" should be in RFC 5952 canonical format ("::1")`}},
		{"a negative grace period", pod("terminationGracePeriodSeconds: -1"), []string{"template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"}},
		{"nothing", pod("hostname: a"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			if got := s.Warnings(obj, nil); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if got := s.Warnings(obj, obj); got != nil {
				t.Errorf("an update that leaves the template alone is told %q", got)
			}
		})
	}
}
