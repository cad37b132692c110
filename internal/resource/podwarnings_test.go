package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
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
		{"a label of nodes that has another name now", pod("nodeSelector: {beta.kubernetes.io/os: a}"), []string{`template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		{"an affinity to such a label", pod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: Exists}]}]}}}"),
			[]string{`template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead`}},
		{"a preference for what no label is", pod("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: ['-1']}]}}]}}"),
			[]string{`template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: -1 is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		{"an affinity to no pods", pod("affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}"), []string{"template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"no pods to be spread", pod("topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"), []string{"template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"}},
		{"a volume that does nothing", pod("volumes: [{name: v, storageos: {volumeName: a}}]"), []string{"template.spec.volumes[0].storageOS: deprecated in v1.22, non-functional in v1.25+"}},
		{"a projection of nothing", pod("volumes: [{name: v, projected: {sources: [{}]}}]"), []string{`volume "v" (Projected) has no sources provided`}},
		{"parts of a byte", containers("resources: {limits: {memory: 1500m}, requests: {memory: 1}}"), []string{`template.spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer`}},
		{"a variable twice", containers("env: [{name: A, value: '1'}, {name: A, value: $(A)2}, {name: A, value: '3'}, {name: A, value: $(A)}]"), []string{`template.spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`,
			`template.spec.containers[0].env[3]: hides previous definition of "A", which may be dropped when using apply`}},
		{"a port twice, and one that may be it", containers("ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: TCP, hostPort: 81}, {containerPort: 80, protocol: UDP}]"), []string{
			"template.spec.containers[0].ports[1]: duplicate port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[0]",
			"template.spec.containers[0].ports[2]: overlapping port definition with template.spec.containers[0].ports[1]"}},
		{"a port of the host at all addresses, at one and at another", containers("ports: [{containerPort: 80, hostPort: 81, hostIP: 10.0.0.1}, {containerPort: 80, hostPort: 81, hostIP: 10.0.0.2}, {containerPort: 80, hostPort: 81}, {containerPort: 80, hostPort: 82}, {containerPort: 80, hostIP: 10.0.0.1}]"), []string{
			"template.spec.containers[0].ports[2]: dangerously ambiguous port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[2]: dangerously ambiguous port definition with template.spec.containers[0].ports[1]",
			"template.spec.containers[0].ports[4]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}",
			"template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[0]", "template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[1]",
			"template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[2]", "template.spec.containers[0].ports[4]: overlapping port definition with template.spec.containers[0].ports[3]"}},
		{"a port of the host, before and after one that is not", "apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {initContainers: [{name: i, image: i, ports: [{containerPort: 80, hostPort: 81}]}], containers: [{name: c, image: i, ports: [{containerPort: 80}, {containerPort: 80, hostPort: 81}]}]}}\n", []string{
			"template.spec.containers[0].ports[0]: overlapping port definition with template.spec.initContainers[0].ports[0]", "template.spec.containers[0].ports[1]: duplicate port definition with template.spec.initContainers[0].ports[0]",
			"template.spec.containers[0].ports[1]: overlapping port definition with template.spec.containers[0].ports[0]"}},
		{"an annotation in place of a container's AppArmor profile", annotated("c", "runtime/default", ""), []string{`template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		{"an annotation that is not the pod's profile", annotated("c", "localhost/a", "securityContext: {appArmorProfile: {type: RuntimeDefault}}"), []string{`template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`}},
		{"an annotation that is the pod's profile", annotated("c", "localhost/a", "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}"), nil},
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

// Comparing every pair of ports took gigabytes and seconds.
func TestManyPortsAreWarnedOfNoMoreThanIsSent(t *testing.T) {
	const many = 60000
	cases := []struct {
		name string
		port func(i int) corev1.ContainerPort
		want string // the first warning
	}{
		{"all the same", func(int) corev1.ContainerPort { return corev1.ContainerPort{ContainerPort: 80} }, "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"},
		{"each of the host at a port of its own", func(i int) corev1.ContainerPort {
			return corev1.ContainerPort{ContainerPort: 80, HostPort: int32(i + 1)}
		}, ""},
		{"each of the host at an address of its own", func(i int) corev1.ContainerPort {
			return corev1.ContainerPort{ContainerPort: 80, HostPort: 81, HostIP: fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}
		}, ""},
		{"the last of the host at all addresses", func(i int) corev1.ContainerPort {
			if i == many-1 {
				return corev1.ContainerPort{ContainerPort: 80, HostPort: 81}
			}
			return corev1.ContainerPort{ContainerPort: 80, HostPort: 81, HostIP: fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}
		}, "spec.containers[0].ports[59999]: dangerously ambiguous port definition with spec.containers[0].ports[0]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
			for i := range many {
				spec.Containers[0].Ports = append(spec.Containers[0].Ports, c.port(i))
			}
			got := warnPorts(spec, validate.SpecPath)
			switch all := strings.Join(got, ""); {
			case c.want == "" && len(got) > 0, c.want != "" && (len(got) == 0 || got[0] != c.want):
				t.Errorf("%d warnings, first %q, want %q", len(got), got[:min(1, len(got))], c.want)
			case c.want != "" && (len(all) <= warnedRunes || len(all) > warnedRunes+warnedRunesOne):
				t.Errorf("warnings of %d characters, want just more than %d", len(all), warnedRunes)
			}
		})
	}
}

func TestAppArmorAnnotationsOfANewPodBecomeFields(t *testing.T) {
	const told = `metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead`
	own := ", securityContext: {appArmorProfile: {type: Unconfined}}"
	pods := "securityContext: {appArmorProfile: {type: RuntimeDefault}}"
	cases := []struct {
		name, annotation, container, spec string
		want, localhost                   string // the container's profile
		warned                            bool
	}{
		{"the runtime's", "runtime/default", "", "", "RuntimeDefault", "", true},
		{"none", "unconfined", "", "", "Unconfined", "", true},
		{"the node's", "localhost/a/b", "", "", "Localhost", "a/b", true},
		{"another one than the pod's", "unconfined", "", pods, "Unconfined", "", true},
		{"the pod's", "runtime/default", "", pods, "", "", false},
		{"the container has one", "runtime/default", own, "", "Unconfined", "", false},
		{"the container has the same", "unconfined", own, "", "Unconfined", "", false},
		{"the node's without a name", "localhost/", "", "", "", "", true},
		{"the node's with a space", "'localhost/ a'", "", "", "", "", true},
		{"what there is not", "other", "", "", "", "", true},
		{"windows", "runtime/default", "", "os: {name: windows}", "", "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {container.apparmor.security.beta.kubernetes.io/c: "+c.annotation+"}}\nspec: {containers: [{name: c, image: i"+c.container+"}], "+c.spec+"}\n")
			var want []string
			if c.warned {
				want = []string{told}
			}
			if got := s.WarningsAsSent(obj); !slices.Equal(got, want) {
				t.Errorf("warned of %q, want %q", got, want)
			}
			s.PrepareCreate(obj)
			if got := s.Warnings(obj, nil); got != nil {
				t.Errorf("warned of %q when it has been prepared", got)
			}
			got := &corev1.AppArmorProfile{}
			if sc := obj.(*corev1.Pod).Spec.Containers[0].SecurityContext; sc != nil {
				got = sc.AppArmorProfile
			}
			if string(got.Type) != c.want || ptr.Deref(got.LocalhostProfile, "") != c.localhost {
				t.Errorf("the profile is %v, want %s %s", got, c.want, c.localhost)
			}
		})
	}
}

func TestProjectionsOfFeaturesThatAreOffAreDropped(t *testing.T) {
	read := func() (*corev1.Pod, *strategy.Strategy) {
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
