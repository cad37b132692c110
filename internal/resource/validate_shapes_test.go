package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The wanted errors are those of upstream's API server.
func TestNewObjectsAreToldWhatWasFoundAmongVeryMany(t *testing.T) {
	node := func(features string) string {
		return "apiVersion: v1\nkind: Node\nstatus: {declaredFeatures: [" + features + "]}\n"
	}
	average := func(value string) string {
		return "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 1, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue" + value + "}}}]}\n"
	}
	hook := func(actions string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, lifecycle: {postStart: {" + actions + "}}}]}\n"
	}
	const name = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
	const at = "spec.containers[0].lifecycle.postStart.sleep: "
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"features of a node", node("A, AB, Aa/b, Bb/Bc/d1, " + strings.Repeat("C", 253)), nil},
		{"a feature in small letters", node("a"), []string{`status.declaredFeatures[0]: Invalid value: "a": invalid feature name "a": ` + name}},
		{"a feature of a number", node("Aa/1"), []string{`invalid feature name "Aa/1": ` + name}},
		{"a feature of nothing at the end", node("Aa/"), []string{`invalid feature name "Aa/": ` + name}},
		{"a feature that is long, and wrong besides", node(strings.Repeat("a", 254)), []string{"must be no more than 253 characters"}},
		{"features in no order", node("Bb, Aa, Bb"), []string{`status.declaredFeatures[1]: Invalid value: "Aa": list must be sorted alphabetically`}},
		{"a feature twice, the order wrong", node("Bb, Bb, ''"), []string{`status.declaredFeatures[1]: Duplicate value: "Bb"`, `status.declaredFeatures[2]: Invalid value: "": list must be sorted alphabetically`, `invalid feature name "": ` + name}},
		{"a negative average", average(", averageValue: -1"), []string{`spec.metrics[0].pods.target.averageValue: Invalid value: "-1": must be positive`}},
		{"no average", average(""), []string{"spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue"}},
		{"a sleep that is too long", hook("sleep: {seconds: 31}"), []string{at + "Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"}},
		{"a sleep beside another action is only that", hook("exec: {command: [a]}, sleep: {seconds: 65535}"), []string{at + "Forbidden: may not specify more than 1 handler type"}},
		{"a variable of a blank name", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nspec: {matchConstraints: {resourceRules: [{apiGroups: [a], apiVersions: [v1], operations: [CREATE], resources: [b]}]}, variables: [{name: ' ', expression: '1'}], validations: [{expression: 'true'}]}\n",
			[]string{"spec.variables[0].name: Required value: name is not specified"}},
		{"claims of a mirror pod", "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {kubernetes.io/config.mirror: a}}\nspec: {nodeName: node, resourceClaims: [{name: a, resourceClaimName: b}], containers: [{name: c, image: i}]}\n",
			[]string{"[]: Forbidden: static pods do not support resource claims"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestTheStatusOfANodeTellsFeaturesInOrder(t *testing.T) {
	old, s := read(t, "apiVersion: v1\nkind: Node\n")
	obj, _ := read(t, "apiVersion: v1\nkind: Node\nstatus: {declaredFeatures: [Bb, Aa]}\n")
	expect(t, s.ValidateStatus(obj, old), `status.declaredFeatures[1]: Invalid value: "Aa": list must be sorted alphabetically`)
}

func TestTheFirstAddressOfAPodsHostIsTheOneThatOldClientsRead(t *testing.T) {
	pod := func(status string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}\nstatus: {" + status + "}\n"
	}
	for status, want := range map[string][]string{
		"":                  nil,
		"hostIP: 192.0.2.1": nil,
		"hostIP: 192.0.2.1, hostIPs: [{ip: 192.0.2.1}]": nil,
		"hostIP: 192.0.2.2, hostIPs: [{ip: 192.0.2.1}]": {"status.hostIPs[0].ip: Invalid value: \"192.0.2.1\": must be equal to `hostIP`"},
		"hostIPs: [{ip: 192.0.2.1}]":                    {"status.hostIPs[0].ip: Invalid value: \"192.0.2.1\": must be equal to `hostIP`"},
	} {
		old, s := read(t, pod(""))
		obj, _ := read(t, pod(status))
		t.Run(status, func(t *testing.T) { expect(t, s.ValidateStatus(obj, old), want...) })
	}
}

const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

func TestAppArmorAnnotationsAreValidated(t *testing.T) {
	const field = "spec.containers[0].securityContext.appArmorProfile"
	own := func(profile string) string { return ", securityContext: {appArmorProfile: {" + profile + "}}" }
	cases := []struct {
		name, container, annotation string // container is the one that the annotation names
		field, spec                 string
		want                        []string // for a pod; for a template below its own path
		// Further errors of a template, whose annotations do not set fields.
		template []string
	}{
		{"the runtime's", "c", "runtime/default", "", "", nil, nil},
		{"none", "c", "unconfined", "", "", nil, nil},
		{"the node's", "c", "localhost/a", "", "", nil, nil},
		{"the node's without a name", "c", "localhost/", "", "", nil, nil},
		{"nothing", "c", "", "", "", nil, nil},
		{"what there is not", "c", "Unconfined", "", "", []string{`annotations[` + appArmorAnnotation + `c]: Invalid value: "Unconfined": invalid AppArmor profile name: "Unconfined"`}, nil},
		{"what there is not, on windows", "c", "x", "", "os: {name: windows}", []string{`invalid AppArmor profile name: "x"`}, nil},
		{"of no container", "d", "localhost", "", "", []string{`annotations[` + appArmorAnnotation + `d]: Invalid value: "d": container not found`, `invalid AppArmor profile name: "localhost"`}, nil},
		{"of an init container", "i", "unconfined", "", "initContainers: [{name: i, image: i}]", nil, nil},
		{"the field says the same", "c", "localhost/a", own("type: Localhost, localhostProfile: a"), "", nil, nil},
		{"the field says another name", "c", "localhost/a", own("type: Localhost, localhostProfile: b"), "", []string{field + ".localhostProfile: Forbidden: apparmor profile in annotation and field must match"}, nil},
		{"the field says another type", "c", "localhost/a", own("type: RuntimeDefault"), "", []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}, nil},
		{"the field says something", "c", "", own("type: Unconfined"), "", []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}, nil},
		{"the field says what there is not", "c", "unconfined", own("type: x"), "", []string{field + ".type: Unsupported value"}, nil},
		{"the pod says something else", "c", "unconfined", "", "securityContext: {appArmorProfile: {type: RuntimeDefault}}", nil, []string{field + ".type: Forbidden: apparmor type in annotation and field must match"}},
		{"a field on windows", "c", "unconfined", own("type: RuntimeDefault"), "os: {name: windows}", []string{field + ": Forbidden: cannot be set for a windows pod"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			meta := "{annotations: {" + appArmorAnnotation + c.container + ": '" + c.annotation + "'}}"
			spec := "{containers: [{name: c, image: i" + c.field + "}], " + c.spec + "}"
			obj, s := read(t, "apiVersion: v1\nkind: Pod\nmetadata: "+meta+"\nspec: "+spec+"\n")
			s.PrepareCreate(obj)
			expect(t, s.ValidateCreate(obj), c.want...)
			obj, s = read(t, "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: "+meta+", spec: "+spec+"}\n")
			expect(t, s.ValidateCreate(obj), append(c.want, c.template...)...)
			if errs := s.ValidateCreate(obj); len(errs) > 0 && !strings.HasPrefix(errs[0].Field, "template.") {
				t.Errorf("the path is %s", errs[0].Field)
			}
		})
	}
}

func TestAppArmorAnnotationsOfAPodStayAsTheyAre(t *testing.T) {
	pod := func(annotation string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {" + annotation + "}}\nspec: {containers: [{name: c, image: i}]}\n"
	}
	const at = "metadata.annotations[" + appArmorAnnotation + "c]: "
	cases := []struct {
		name, before, after string
		// Errors about the change; itself are the annotation's own errors, which a pod update
		// reports twice.
		want   []string
		itself []string
	}{
		{"it stays", appArmorAnnotation + "c: unconfined", appArmorAnnotation + "c: unconfined", nil, nil},
		{"another one comes", "a: b", "a: c", nil, nil},
		{"it comes", "", appArmorAnnotation + "c: unconfined", []string{at + "Forbidden: may not add AppArmor annotations"}, nil},
		{"it goes", appArmorAnnotation + "c: unconfined", "", []string{at + "Forbidden: may not remove or update AppArmor annotations"}, nil},
		{"it changes", appArmorAnnotation + "c: unconfined", appArmorAnnotation + "c: x", []string{at + "Forbidden: may not remove or update AppArmor annotations"}, []string{at + `Invalid value: "x": invalid AppArmor profile name: "x"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := read(t, pod(c.before))
			s.PrepareCreate(old)
			obj := old.DeepCopyObject()
			changed, _ := read(t, pod(c.after))
			obj.(*corev1.Pod).Annotations = changed.(*corev1.Pod).Annotations
			expect(t, s.ValidateUpdate(obj, old), append(append(c.want, c.itself...), c.itself...)...)
			expect(t, s.ValidateStatus(obj, old), append(c.want, c.itself...)...)
		})
	}
}

func TestADryRunShowsTheSelfLinkThatWasSent(t *testing.T) {
	const service = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.a.example, labels: {a: b}"
	old, s := read(t, service+"}\n")
	obj, _ := read(t, service+", selfLink: /me}\n")
	s.PrepareStatus(obj, old)
	if got := selfLink(obj); got != "/me" {
		t.Errorf("the link is %q", got)
	}
}

func selfLink(obj runtime.Object) string {
	return obj.(interface{ GetSelfLink() string }).GetSelfLink()
}

func TestPathsInsideAVolumeAreToldWhereUpstreamTellsThem(t *testing.T) {
	token := func(path string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}], serviceAccountName: a, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: '" + path + "'}}]}}]}\n"
	}
	file := func(path string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: '" + path + "', key: K}}}]}], volumes: [{name: v, emptyDir: {}}]}\n"
	}
	for _, c := range []struct {
		name, manifest string
		want           []string
	}{
		{"a token", token("a/b"), nil},
		{"a token with an absolute path", token("/a"), []string{`spec.volumes[0].projected.path: Invalid value: "/a": must be a relative path`}},
		{"a token outside of the volume", token("a/../../b"), []string{`spec.volumes[0].projected.path: Invalid value: "a/../../b": must not contain '..'`}},
		{"a token with a reserved name", token("..a"), []string{`spec.volumes[0].projected.path: Invalid value: "..a": must not start with '..'`}},
		{"a file may begin with a slash", file("/a"), nil},
		{"and have any name", file("..a"), nil},
		{"but not leave the volume", file("../a"), []string{`spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "../a": must not contain '..'`}},
	} {
		obj, s := read(t, c.manifest)
		t.Run(c.name, func(t *testing.T) { expect(t, s.ValidateCreate(obj), c.want...) })
	}
}

func TestALoadBalancersNameIsNoAddressHoweverItIsWritten(t *testing.T) {
	service := func(hostname string) string {
		return "apiVersion: v1\nkind: Service\nspec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{hostname: '" + hostname + "'}]}}\n"
	}
	for name, want := range map[string][]string{
		"a.example": nil, "1.2.3": nil, "256.1.1.1": nil,
		"10.0.0.1":  {`status.loadBalancer.ingress[0].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`},
		"010.0.0.1": {`status.loadBalancer.ingress[0].hostname: Invalid value: "010.0.0.1": must be a DNS name, not an IP address`},
	} {
		old, s := read(t, service("old"))
		obj, _ := read(t, service(name))
		expect(t, s.ValidateStatus(obj, old), want...)
	}
}

func TestANodeWithoutAllocatableCanAllocateAllItHas(t *testing.T) {
	for _, more := range []string{"", ", allocatable: {}"} {
		obj, s := read(t, "apiVersion: v1\nkind: Node\nstatus: {capacity: {cpu: '2'}"+more+"}\n")
		s.Default(obj)
		if cpu := obj.(*corev1.Node).Status.Allocatable.Cpu(); cpu.Value() != 2 {
			t.Errorf("allocatable%s: %v", more, cpu)
		}
	}
}
