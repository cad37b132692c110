package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestObjectsAreWarnedOf(t *testing.T) {
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {annotations: {service.kubernetes.io/topology-aware-hints: auto}}\nspec: {ports: [{port: 80}], " + spec + "}\n"
	}
	volume := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + spec + "}\n"
	}
	const hints = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
	const many = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
	job := "spec: {completionMode: Indexed, completions: 200000, parallelism: 20000, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a service of odd addresses", service("type: LoadBalancer, loadBalancerIP: 010.0.0.1, externalIPs: ['1:0::1'], loadBalancerSourceRanges: [' 10.0.0.0/8', '1:0::/64'], trafficDistribution: PreferClose, externalName: a"), []string{
			hints, `spec.externalIPs[0]: IPv6 address "1:0::1" should be in RFC 5952 canonical format ("1::1")`, "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
			`spec.loadBalancerIP: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"`, `spec.loadBalancerSourceRanges[1]: IPv6 CIDR value "1:0::/64" should be in RFC 5952 canonical format ("1::/64")`,
			`spec.externalName is ignored when spec.type is not "ExternalName"`, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`}},
		{"a service without addresses that has some", service("clusterIP: None, loadBalancerIP: 1.2.3.4, externalIPs: [1.2.3.4], sessionAffinity: ClientIP"), []string{
			hints, "spec.loadBalancerIP is ignored for headless services", "spec.externalIPs is ignored for headless services", "spec.SessionAffinity is ignored for headless services"}},
		{"a load balancer's address that is none", service("type: LoadBalancer, loadBalancerIP: x"), []string{hints}},
		{"endpoints of long addresses", "apiVersion: v1\nkind: Endpoints\nsubsets: [{addresses: [{ip: '1:0::1'}], notReadyAddresses: [{ip: '1:0::2'}]}]\n", []string{
			`subsets[0].addresses[0].ip: IPv6 address "1:0::1" should be in RFC 5952 canonical format ("1::1")`, `subsets[0].notReadyAddresses[0].ip: IPv6 address "1:0::2" should be in RFC 5952 canonical format ("1::2")`}},
		{"a node of a long range", "apiVersion: v1\nkind: Node\nspec: {podCIDRs: ['1:0::/64'], externalID: x}\n", []string{
			"spec.externalID: this field is deprecated, and is unused by Kubernetes", `spec.podCIDRs[0]: IPv6 CIDR value "1:0::/64" should be in RFC 5952 canonical format ("1::/64")`}},
		{"an account that names secrets", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {annotations: {kubernetes.io/enforce-mountable-secrets: 'false'}}\n", []string{
			"metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}},
		{"a claim of an old class, of parts of a byte", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {annotations: {volume.beta.kubernetes.io/storage-class: a}}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1500m}, limits: {storage: 2500m}}}\n", []string{
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`,
			`spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`, `spec.resources.limits[storage]: fractional byte value "2500m" is invalid, must be an integer`}},
		{"a volume of an old kind at an old label, recycled", volume("glusterfs: {endpoints: a, path: b}, persistentVolumeReclaimPolicy: Recycle, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: beta.kubernetes.io/os, operator: Exists}]}]}}"), []string{
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
			`spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`, "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+"}},
		{"a quota of more requests than limits", "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: {cpu: 9, requests.cpu: '5', limits.cpu: '3', memory: '1e10', limits.memory: 1Gi, ephemeral-storage: 5Gi, limits.ephemeral-storage: 3Gi}}\n", []string{
			"ResourceQuota requests.cpu (5) should be less than limits.cpu (3)", "ResourceQuota memory (10e9) should be less than limits.memory (1Gi)"}},
		{"a quota of as many, in requests at least", "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: {cpu: 9, requests.cpu: '3', limits.cpu: '3', requests.memory: 1Gi}}\n", nil},
		{"a volume of a kind that is not told of here", volume("quobyte: {registry: 'a:1', volume: b}"), nil},
		{"a set that keeps all its revisions", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {revisionHistoryLimit: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1500m}}}}]}\n", []string{
			`spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"}},
		{"a job of very many indexes", "apiVersion: batch/v1\nkind: Job\n" + job + "\n", []string{"spec: " + many}},
		{"jobs of very many indexes", "apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '* * * * *', jobTemplate: {" + job + "}}\n", []string{"spec.jobTemplate.spec: " + many}},
		{"a job whose name no host has", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a.b}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n", []string{
			"metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			if s.Default != nil {
				s.Default(obj)
			}
			if got := s.Warnings(obj, nil); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestWarningsOfATemplateAreRepeatedWhenMoreThanMetadataChanges(t *testing.T) {
	template := "template: {metadata: {labels: {a: b}}, spec: {terminationGracePeriodSeconds: -1, containers: [{name: c, image: i}]}}"
	for manifest, repeated := range map[string]bool{
		"apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {matchLabels: {a: b}}, " + template + "}\n": true,
		"apiVersion: v1\nkind: ReplicationController\nspec: {selector: {a: b}, " + template + "}\n":          true,
		"apiVersion: apps/v1\nkind: DaemonSet\nspec: {selector: {matchLabels: {a: b}}, " + template + "}\n":  false,
		"apiVersion: v1\nkind: PodTemplate\n" + template + "\n":                                              false,
	} {
		old, s := read(t, manifest)
		obj, _ := read(t, manifest)
		if got := s.Warnings(obj, old); len(got) > 0 {
			t.Errorf("%s: nothing has changed, and it says %v", manifest, got)
		}
		obj.(metav1.Object).SetGeneration(2)
		if got := s.Warnings(obj, old); (len(got) > 0) != repeated {
			t.Errorf("%s: something else has changed, and it says %v", manifest, got)
		}
	}
}

func TestAnAccountIsWarnedOfAnAnnotationOnce(t *testing.T) {
	account := func(value string) string {
		return "apiVersion: v1\nkind: ServiceAccount\nmetadata: {annotations: {kubernetes.io/enforce-mountable-secrets: '" + value + "'}}\n"
	}
	old, s := read(t, account("false"))
	obj, _ := read(t, account("true"))
	if got := s.Warnings(obj, old); len(got) > 0 {
		t.Errorf("it was there before: %v", got)
	}
}

func TestFilesOfAVolumeThatLieWithinOneAnother(t *testing.T) {
	cases := []struct {
		name, volume string
		want         []string
	}{
		{"a file in a file", "secret: {secretName: s, items: [{key: k, path: p}, {key: l, path: p/q}]}", []string{`(Secret "s"): overlapping paths: "p/q" with "p"`}},
		{"a file twice", "configMap: {name: c, items: [{key: k, path: p}, {key: l, path: p/}]}", []string{`(ConfigMap "c"): overlapping paths: "p" with "p"`}},
		{"a field twice", "downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}, {path: p, fieldRef: {fieldPath: metadata.name}}]}", []string{`(DownwardAPI): overlapping paths: "p" with "p"`}},
		{"files side by side", "secret: {secretName: s, items: [{key: k, path: p}, {key: l, path: pq}, {key: m, path: p-q/r}, {key: o, path: ./p}]}", nil},
		{"folders around folders", "projected: {sources: [{secret: {name: s, items: [{key: k, path: p/q/r}]}}, {configMap: {name: c, items: [{key: k, path: p/q}]}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}", []string{
			`(Projected): overlapping paths: "p/q" (ConfigMap "c") with "p/q/r" (Secret "s")`, `(Projected): overlapping paths: "p" (DownwardAPI) with "p/q/r" (Secret "s")`, `(Projected): overlapping paths: "p" (DownwardAPI) with "p/q" (ConfigMap "c")`}},
		{"a token in place of a secret", "projected: {sources: [{secret: {name: s, items: [{key: k, path: p}]}}, {serviceAccountToken: {path: p}}]}", []string{`(Projected): overlapping paths: "p" (ServiceAccountToken) with "p" (Secret "s")`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, _ := read(t, "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}], volumes: [{name: v, "+c.volume+"}]}\n")
			var want []string
			for _, w := range c.want {
				want = append(want, `volume "v" `+w)
			}
			if got := warnPaths(&obj.(*corev1.Pod).Spec.Volumes[0]); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// All of them overlap. Comparing every pair would take an hour.
func TestVeryManyOverlappingFilesAreToldOfInShort(t *testing.T) {
	s := &corev1.SecretVolumeSource{SecretName: "s"}
	for i := range 200_000 {
		s.Items = append(s.Items, corev1.KeyToPath{Path: "p"}, corev1.KeyToPath{Path: fmt.Sprint("p/", i)})
	}
	v := &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: s}}
	if got := warnPaths(v); len(got) == 0 || len(got) > warnedRunes {
		t.Errorf("%d warnings", len(got))
	}
}
