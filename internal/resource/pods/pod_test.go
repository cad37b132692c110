package pods_test

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func podFrom(t testing.TB, manifest string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest), pod); err != nil {
		t.Fatal(err)
	}
	rules.For(schema.GroupResource{Resource: "pods"}).Default(pod)
	return pod
}

const goodPod = `
metadata: {name: p, namespace: ns, labels: {app: web}}
spec:
  serviceAccountName: default
  containers:
  - name: c
    image: i
    ports: [{name: http, containerPort: 80}]
    env:
    - {name: A, value: b}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    envFrom: [{configMapRef: {name: m}}]
    resources: {requests: {cpu: 100m, memory: 1Mi}, limits: {memory: 2Mi, example.com/gpu: 1}}
    volumeMounts: [{name: data, mountPath: /data, subPath: a/b}]
    livenessProbe: {httpGet: {path: /, port: http}}
    lifecycle: {preStop: {sleep: {seconds: 3}}}
  initContainers:
  - {name: init, image: i, command: [sh]}
  - {name: side, image: i, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 1}}}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: host, hostPath: {path: /tmp, type: Directory}}
  - {name: all, projected: {sources: [{secret: {name: s}}, {downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}, {serviceAccountToken: {path: t}}]}}
  - {name: claim, persistentVolumeClaim: {claimName: c}}
  - {name: eph, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  affinity:
    nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}], matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}
    podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
  tolerations: [{operator: Exists}, {key: k, value: v, effect: NoExecute, tolerationSeconds: 5}]
  hostAliases: [{ip: 127.0.0.1, hostnames: [foo.local]}]
  dnsConfig: {nameservers: [1.2.3.4], searches: [example.com.], options: [{name: ndots, value: "2"}]}
  securityContext: {runAsUser: 1000, fsGroup: 2000, sysctls: [{name: kernel.shm_rmid_forced, value: "1"}], seccompProfile: {type: RuntimeDefault}}
  readinessGates: [{conditionType: example.com/ready}]
`

// The wanted values are those of upstream's API server for the same pods (KEP-2837).
func TestPodLevelRequestsDefaultToTheSumOfContainers(t *testing.T) {
	cases := []struct{ name, pod, container, want string }{
		{"nothing is limited", "{requests: {cpu: 1}}", "{requests: {memory: 1Gi}}", "map[cpu:1]"},
		{"another resource is limited", "{limits: {cpu: 1}, requests: {cpu: 1}}", "{requests: {memory: 1Gi}}", "map[cpu:1 memory:1Gi]"},
		{"the containers request the limited resource", "{limits: {cpu: 2}}", "{requests: {cpu: 1, memory: 1Gi}}", "map[cpu:1 memory:1Gi]"},
		{"the containers only have limits", "{limits: {memory: 2Gi}}", "{limits: {cpu: 1}}", "map[cpu:1 memory:2Gi]"},
		{"huge pages at pod level", "{limits: {cpu: 1, hugepages-2Mi: 4Mi}}", "{requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}", "map[cpu:1 hugepages-2Mi:4Mi]"},
		{"huge pages of containers only", "{limits: {cpu: 1}}", "{requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}", "map[cpu:1]"},
		{"a resource without a pod-level limit", "{limits: {cpu: 1}}", "{requests: {ephemeral-storage: 1Gi}}", "map[cpu:1]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nspec: {resources: "+c.pod+", containers: [{name: c, image: i, resources: "+c.container+"}]}\n")
			got := map[corev1.ResourceName]string{}
			for name, amount := range obj.(*corev1.Pod).Spec.Resources.Requests {
				got[name] = amount.String()
			}
			if text := fmt.Sprint(got); text != c.want {
				t.Errorf("the pod requests %s, want %s", text, c.want)
			}
		})
	}
}

func TestNegativeGracePeriodsBecomeOneSecond(t *testing.T) {
	old, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nspec: {terminationGracePeriodSeconds: 30}\n")
	for name, prepare := range map[string]func(obj runtime.Object){
		"create": s.PrepareCreate, "update": func(obj runtime.Object) { s.PrepareUpdate(obj, old) },
	} {
		obj, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: Pod\nspec: {terminationGracePeriodSeconds: -1}\n")
		if prepare(obj); *obj.(*corev1.Pod).Spec.TerminationGracePeriodSeconds != 1 {
			t.Errorf("%s: %d s", name, *obj.(*corev1.Pod).Spec.TerminationGracePeriodSeconds)
		}
	}
}

func TestPodsAreValidated(t *testing.T) {
	one, big, yes, no := int64(1), int64(1<<40), true, false
	bidirectional, user := corev1.MountPropagationBidirectional, "someone"
	cases := []struct {
		name   string
		change func(s *corev1.PodSpec)
		want   []string
	}{
		{"a good pod", func(*corev1.PodSpec) {}, nil},
		{"no containers", func(s *corev1.PodSpec) { s.Containers = nil }, []string{"spec.containers: Required value"}},
		{"a bad name", func(s *corev1.PodSpec) { s.Containers[0].Name = "A_b" }, []string{`spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of`}},
		{"two of a name", func(s *corev1.PodSpec) { s.InitContainers[0].Name = "c" }, []string{`spec.initContainers[0].name: Duplicate value: "c"`}},
		{"no image", func(s *corev1.PodSpec) { s.Containers[0].Image = "" }, []string{"spec.containers[0].image: Required value"}},
		{"a padded image", func(s *corev1.PodSpec) { s.Containers[0].Image = " i" }, []string{"must not have leading or trailing whitespace"}},
		{"a bad pull policy", func(s *corev1.PodSpec) { s.Containers[0].ImagePullPolicy = "x" }, []string{`spec.containers[0].imagePullPolicy: Unsupported value: "x": supported values: "Always", "IfNotPresent", "Never"`}},
		{"a bad restart policy", func(s *corev1.PodSpec) { s.RestartPolicy = "x" }, []string{`spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"`}},
		{"a request above its limit", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["memory"] = resource.MustParse("3Mi") }, []string{`spec.containers[0].resources.requests: Invalid value: "3Mi": must be less than or equal to memory limit of 2Mi`}},
		{"an unknown resource", func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits["foo"] = resource.MustParse("1") }, []string{
			`spec.containers[0].resources.limits[foo]: Invalid value: "foo": must be a standard resource type or fully qualified`,
			`spec.containers[0].resources.limits[foo]: Invalid value: "foo": must be a standard resource for containers`}},
		{"a part of a device", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1500m")
		}, []string{`spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer`, `spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 1500m`}},
		{"a negative quantity", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("-1") }, []string{`spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		{"an unknown volume", func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].Name = "x" }, []string{`spec.containers[0].volumeMounts[0].name: Not found: "x"`}},
		{"a subPath upwards", func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].SubPath = "a/../b" }, []string{`spec.containers[0].volumeMounts.subPath: Invalid value: "a/../b": must not contain '..'`}},
		{"an absolute subPath", func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].SubPath = "/a" }, []string{`spec.containers[0].volumeMounts.subPath: Invalid value: "/a": must be a relative path`}},
		{"propagation without privilege", func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].MountPropagation = &bidirectional }, []string{"Bidirectional mount propagation is available only to privileged containers"}},
		{"two volume types", func(s *corev1.PodSpec) { s.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/"} }, []string{"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type", `spec.containers[0].volumeMounts[0].name: Not found: "data"`}},
		{"no volume type", func(s *corev1.PodSpec) { s.Volumes[0].EmptyDir = nil }, []string{"spec.volumes[0]: Required value: must specify a volume type", `spec.containers[0].volumeMounts[0].name: Not found: "data"`}},
		{"two projections into one path", func(s *corev1.PodSpec) {
			s.Volumes[2].Projected.Sources[0].Secret.Items = []corev1.KeyToPath{{Key: "k", Path: "l"}}
		}, []string{`spec.volumes[2].projected: Invalid value: "l": conflicting duplicate paths`}},
		{"a token for a second", func(s *corev1.PodSpec) {
			s.Volumes[2].Projected.Sources[2].ServiceAccountToken.ExpirationSeconds = &one
		}, []string{"may not specify a duration less than 10 minutes"}},
		{"a bad field path", func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom.FieldRef.FieldPath = "status.x" }, []string{`spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Invalid value: "status.x": error converting fieldPath: field label not supported: status.x`}},
		{"a field path that environments lack", func(s *corev1.PodSpec) { s.Containers[0].Env[1].ValueFrom.FieldRef.FieldPath = "metadata.labels" }, []string{`spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`}},
		{"a value and a source", func(s *corev1.PodSpec) { s.Containers[0].Env[1].Value = "x" }, []string{"spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"}},
		{"a probe without handler", func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe.HTTPGet = nil }, []string{"spec.containers[0].livenessProbe: Required value: must specify a handler type"}},
		{"a liveness threshold", func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe.SuccessThreshold = 2 }, []string{"spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"}},
		{"a port by a bad name", func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe.HTTPGet.Port = intstr.FromString("x_") }, []string{"spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"x_\": must contain only alpha-numeric"}},
		{"a probe of an init container", func(s *corev1.PodSpec) { s.InitContainers[0].LivenessProbe = s.Containers[0].LivenessProbe }, []string{"spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"}},
		{"a port of the host's network", func(s *corev1.PodSpec) { s.HostNetwork = true; s.Containers[0].Ports[0].HostPort = 81 }, []string{"spec.containers[0].ports[0].containerPort: Invalid value: 80: must match `hostPort` when `hostNetwork` is true"}},
		{"a host port taken twice", func(s *corev1.PodSpec) {
			s.Containers[0].Ports = append(s.Containers[0].Ports, s.Containers[0].Ports[0])
			s.Containers[0].Ports[1].Name = ""
			s.Containers[0].Ports[0].HostPort, s.Containers[0].Ports[1].HostPort = 80, 80
		}, []string{`spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//80"`}},
		{"a deadline out of range", func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = &big }, []string{"spec.activeDeadlineSeconds: Invalid value: 1099511627776: must be between 1 and 2147483647, inclusive"}},
		{"a privileged container without escalation", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes, AllowPrivilegeEscalation: &no}
		}, []string{"cannot set `allowPrivilegeEscalation` to false and `privileged` to true"}},
		{"a network sysctl of the host", func(s *corev1.PodSpec) {
			s.HostNetwork = true
			s.Containers[0].Ports = nil
			s.SecurityContext.Sysctls[0].Name = "net.core.somaxconn"
		}, []string{"spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is true"}},
		{"a shared process namespace of the host", func(s *corev1.PodSpec) { s.HostPID, s.ShareProcessNamespace = true, &yes }, []string{"spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"}},
		{"a toleration of nothing", func(s *corev1.PodSpec) { s.Tolerations[0].Operator = "" }, []string{`spec.tolerations[0].operator: Invalid value: "": operator must be Exists when ` + "`key`" + ` is empty`}},
		{"seconds without NoExecute", func(s *corev1.PodSpec) { s.Tolerations[1].Effect = "" }, []string{"effect must be 'NoExecute' when `tolerationSeconds` is set"}},
		{"a term without topology", func(s *corev1.PodSpec) {
			s.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = ""
		}, []string{"topologyKey: Required value: can not be empty", "topologyKey: Invalid value: \"\": name part must be non-empty", "topologyKey: Invalid value: \"\": name part must consist of"}},
		{"no skew", func(s *corev1.PodSpec) { s.TopologySpreadConstraints[0].MaxSkew = 0 }, []string{"spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"}},
		{"no DNS", func(s *corev1.PodSpec) { s.DNSPolicy, s.DNSConfig = "None", nil }, []string{"spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"}},
		{"a bad alias", func(s *corev1.PodSpec) { s.HostAliases[0].IP = "x" }, []string{`spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address`}},
		{"a volume claim template with deletionTimestamp", func(s *corev1.PodSpec) {
			s.Volumes[4].Ephemeral.VolumeClaimTemplate.DeletionTimestamp = &metav1.Time{}
		}, []string{"spec.volumes[4].ephemeral.volumeClaimTemplate.metadata.deletionTimestamp: Forbidden: cannot be set"}},
		{"a volume claim with a uid", func(s *corev1.PodSpec) { s.Volumes[4].Ephemeral.VolumeClaimTemplate.UID = "u" }, []string{"metadata.uID: Forbidden: cannot be set"}},
		{"a volume claim without size", func(s *corev1.PodSpec) { s.Volumes[4].Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests = nil }, []string{"spec.volumes[4].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value"}},
		{"a linux pod with windows options", func(s *corev1.PodSpec) {
			s.OS = &corev1.PodOS{Name: "linux"}
			s.Containers[0].SecurityContext = &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{RunAsUserName: &user}}
		}, []string{"spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := podFrom(t, goodPod)
			c.change(&pod.Spec)
			resourcetest.Expect(t, rules.For(schema.GroupResource{Resource: "pods"}).ValidateCreate(pod), c.want...)
		})
	}
}

func TestUpdatesOfPodsChangeFewFields(t *testing.T) {
	five, three := int64(5), int64(3)
	cases := []struct {
		name        string
		before, now func(p *corev1.Pod)
		want        []string
	}{
		{"nothing", nil, func(*corev1.Pod) {}, nil},
		{"an image", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }, nil},
		{"an added toleration", nil, func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: "Exists"})
		}, nil},
		{"a removed toleration", nil, func(p *corev1.Pod) { p.Spec.Tolerations = nil }, []string{"spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"}},
		{"a shorter deadline", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &three }, nil},
		{"a longer deadline", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &three }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, []string{"spec.activeDeadlineSeconds: Invalid value: 5: must be less than or equal to previous value"}},
		{"an added gate", nil, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }, []string{"only deletion is allowed, but found new scheduling gate 'g'"}},
		{"a removed gate and a narrower selector", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }, func(p *corev1.Pod) {
			p.Spec.SchedulingGates = nil
			p.Spec.NodeSelector = map[string]string{"a": "b"}
		}, nil},
		{"another node", func(p *corev1.Pod) { p.Spec.NodeName = "a" }, func(p *corev1.Pod) { p.Spec.NodeName = "b" },
			[]string{"spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"}},
		{"a removed container", nil, func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[:1] }, []string{"spec.initContainers: Forbidden: pod updates may not add or remove containers"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old := podFrom(t, goodPod)
			if c.before != nil {
				c.before(old)
			}
			pod := old.DeepCopy()
			c.now(pod)
			resourcetest.Expect(t, rules.For(schema.GroupResource{Resource: "pods"}).ValidateUpdate(pod, old), c.want...)
		})
	}
}

func TestResizeKeepsTheQOSClass(t *testing.T) {
	resize := rules.For(schema.GroupResource{Resource: "pods"}).Subresource["resize"].Validate
	old := podFrom(t, goodPod)
	pod := old.DeepCopy()
	pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("200m")
	resourcetest.Expect(t, resize(pod, old))
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	resourcetest.Expect(t, resize(pod, old), "resource limits cannot be removed")
}

func TestResizeChangesCPUAndMemoryOnly(t *testing.T) {
	resize := rules.For(schema.GroupResource{Resource: "pods"}).Subresource["resize"].Validate
	const given = "{requests: {cpu: 1m, ephemeral-storage: 1Gi}, limits: {cpu: 2, memory: 1Gi}}"
	old := podFrom(t, `{metadata: {name: a, namespace: b}, spec: {restartPolicy: Always, dnsPolicy: Default, terminationGracePeriodSeconds: 1,
		initContainers: [{name: i, image: i, resources: `+given+`}, {name: s, image: i, restartPolicy: Always, resources: `+given+`}], containers: [{name: c, image: i, resources: `+given+`}]}}`)
	const onlyInit, only = "only cpu and memory resources for init or sidecar containers are mutable", "spec: Forbidden: only cpu and memory resources are mutable"
	for name, c := range map[string]struct {
		change func(*corev1.Container)
		want   [3]string // for the init container, the sidecar and the container
	}{
		"CPU":          {func(c *corev1.Container) { c.Resources.Requests["cpu"] = resource.MustParse("1") }, [3]string{}},
		"added memory": {func(c *corev1.Container) { c.Resources.Requests["memory"] = resource.MustParse("1Mi") }, [3]string{}},
		"a removed limit": {func(c *corev1.Container) { delete(c.Resources.Limits, "memory") },
			[3]string{"spec.initContainers[0].resources.limits: Forbidden: resource limits cannot be removed", "spec.initContainers[1].resources.limits: Forbidden", "spec.containers[0].resources.limits: Forbidden"}},
		"storage": {func(c *corev1.Container) { c.Resources.Requests["ephemeral-storage"] = resource.MustParse("1") },
			[3]string{"spec.initContainers[0]: Forbidden: " + onlyInit, "spec.initContainers[1]: Forbidden: " + onlyInit, only}},
		"a changed resize policy": {func(c *corev1.Container) {
			c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: corev1.NotRequired}}
		}, [3]string{onlyInit, onlyInit, only}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range c.want {
				pod := old.DeepCopy()
				c.change([]*corev1.Container{&pod.Spec.InitContainers[0], &pod.Spec.InitContainers[1], &pod.Spec.Containers[0]}[i])
				if want == "" {
					resourcetest.Expect(t, resize(pod, old))
				} else {
					resourcetest.Expect(t, resize(pod, old), want)
				}
			}
		})
	}
	pod := old.DeepCopy()
	pod.Spec.InitContainers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: corev1.RestartContainer}}
	resourcetest.Expect(t, resize(pod, old), "must not be set to 'RestartContainer'", onlyInit, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
}

func TestResizeKeepsTheContainersAndTheirOrder(t *testing.T) {
	resize := rules.For(schema.GroupResource{Resource: "pods"}).Subresource["resize"]
	old := podFrom(t, `{metadata: {name: a, namespace: b}, spec: {restartPolicy: Always, dnsPolicy: Default, terminationGracePeriodSeconds: 1,
		initContainers: [{name: i, image: i}], containers: [{name: c, image: i}, {name: d, image: i}]}}`)
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		want   []string
	}{
		"the same": {func(*corev1.PodSpec) {}, nil},
		"renamed": {func(s *corev1.PodSpec) { s.Containers[0].Name, s.Containers[1].Name = "e", "f" }, []string{
			"spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize", "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"}},
		"reordered": {func(s *corev1.PodSpec) { slices.Reverse(s.Containers) }, []string{"spec.containers[0].name: Forbidden", "spec.containers[1].name: Forbidden"}},
		"removed":   {func(s *corev1.PodSpec) { s.Containers = s.Containers[:1] }, []string{"spec.containers: Forbidden: containers may not be added or removed on resize"}},
		"an init container renamed": {func(s *corev1.PodSpec) { s.InitContainers[0].Name = "j" }, []string{
			"spec.initContainers[0].name: Forbidden: containers may not be renamed or reordered on resize"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := old.DeepCopy()
			c.change(&pod.Spec)
			resize.Prepare(pod, old)
			resourcetest.Expect(t, resize.Validate(pod, old), c.want...)
		})
	}
}

// Pods with random content are valid or invalid, but never make validation panic.
func TestRandomPodsNeverPanicTheValidator(t *testing.T) {
	s := rules.For(schema.GroupResource{Resource: "pods"})
	for seed := range int64(100) {
		fill := randfill.New().RandSource(rand.NewSource(seed)).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewQuantity(c.Int63n(5)-1, resource.DecimalSI)
			},
			func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(70000)) },
		)
		pod, old := &corev1.Pod{}, &corev1.Pod{}
		fill.Fill(pod)
		fill.Fill(old)
		s.ValidateCreate(pod)
		s.ValidateUpdate(pod, old)
		s.ValidateUpdate(pod, pod.DeepCopy())
		s.ValidateStatus(pod, old)
		for _, sub := range s.Subresource {
			sub.Validate(pod, pod.DeepCopy())
		}
	}
}

func TestNewPodsAreValidated(t *testing.T) {
	pod := func(spec string) string { return "apiVersion: v1\nkind: Pod\nspec: {" + spec + "}\n" }
	mounted := func(container string) string {
		return pod("restartPolicy: Never, volumes: [{name: v, persistentVolumeClaim: {claimName: a}}], containers: [{name: c, image: i, " + container + "}]")
	}
	const restart = `resizePolicy: Invalid value: "RestartContainer": must be 'NotRequired' when pod ` + "`restartPolicy` is 'Never'"
	const iscsi = "iscsi: {targetPortal: a, lun: 0, iqn: "
	mounting := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}], " + spec + "}\n"
	}
	const notFound = `spec.containers[0].volumeMounts[0].name: Not found: "v"`
	env := func(from string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, " + from + "}]}\n"
	}
	hook := func(actions string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, lifecycle: {postStart: {" + actions + "}}}]}\n"
	}
	const at = "spec.containers[0].lifecycle.postStart.sleep: "
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a name server with leading zeros", "apiVersion: v1\nkind: Pod\nspec: {dnsConfig: {nameservers: [010.0.0.1]}, containers: [{name: c, image: i}]}\n", []string{`spec.dnsConfig.nameservers[0]: Invalid value: "010.0.0.1": must not have leading 0s`}},
		{"a mount without a volume name", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, volumeMounts: [{mountPath: /a}]}]}\n", []string{"volumeMounts[0].name: Required value", `volumeMounts[0].name: Not found: ""`}},
		{"an unknown termination message policy", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i, terminationMessagePolicy: x}]}\n", []string{`supported values: "File", "FallbackToLogsOnError"`}},
		{"a profile of an unknown type", "apiVersion: v1\nkind: Pod\nspec: {securityContext: {seccompProfile: {type: x, localhostProfile: a}}, containers: [{name: c, image: i}]}\n", []string{"seccompProfile.type: Unsupported value", "localhostProfile: Invalid value: {\"type\":\"x\",\"localhostProfile\":\"a\"}: can only be set when seccomp type is Localhost"}},
		{"a resize policy with restart, for policy Never", mounted("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"), []string{"spec.containers[0]." + restart}},
		{"a resize policy with restart, for an init container", pod("restartPolicy: Always, containers: [{name: c, image: i}], initContainers: [{name: d, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]"), []string{
			`spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers`}},
		{"subPath and subPathExpr together", mounted("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b, subPath: x, subPathExpr: z}]"), []string{`spec.containers[0].volumeMounts[1].subPathExpr: Invalid value: "z": subPathExpr and subPath are mutually exclusive`}},
		{"containers without names", pod("containers: [{image: i}, {image: i}]"), []string{"spec.containers[0].name: Required value", "spec.containers[1].name: Required value", `spec.containers[1].name: Duplicate value: ""`}},
		{"an ephemeral volume without a name", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}], containers: [{name: c, image: i}]}\n", []string{"spec.volumes[0].name: Required value"}},
		{"a repeated device of a missing volume", mounted("volumeDevices: [{name: w, devicePath: /a}, {name: w, devicePath: /b}]"), []string{`volumeDevices[0].name: Not found: "w"`, `volumeDevices[1].name: Not found: "w"`, `volumeDevices[1].name: Invalid value: "w": must be unique`}},
		{"a file of variables in an invalid volume", mounted("env: [{name: A, valueFrom: {fileKeyRef: {key: a, path: b, volumeName: A_}}}]"), []string{`fileKeyRef.volumeName: Invalid value: "A_": a lowercase RFC 1123 label`, `fileKeyRef.volumeName: Not found: "A_"`}},
		{"two devices without a path", mounted("volumeDevices: [{name: v}, {name: v}]"), []string{"volumeDevices[0].devicePath: Required value", "volumeDevices[1].devicePath: Required value", `volumeDevices[1].devicePath: Invalid value: "": must be unique`, `volumeDevices[1].name: Invalid value: "v": must be unique`}},
		{"an empty list of pod-level claims", pod("resources: {claims: []}, containers: [{name: c, image: i}]"), []string{"spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"}},
		{"a token at the path of another file", pod("serviceAccountName: a, volumes: [{name: v, projected: {sources: [{secret: {name: s, items: [{key: k, path: p}]}}, {serviceAccountToken: {path: p, expirationSeconds: 3600}}]}}], containers: [{name: c, image: i}]"), nil},
		{"an iSCSI target of a pod without a known form", pod("volumes: [{name: v, " + iscsi + "a}}], containers: [{name: c, image: i}]"), []string{`spec.volumes[0].iscsi.iqn: Invalid value: "a": must be valid format starting with iqn, eui, or naa`}},
		{"an iSCSI target of a pod in a wrong form", pod("volumes: [{name: v, " + iscsi + "iqn.a}}], containers: [{name: c, image: i}]"), []string{`spec.volumes[0].iscsi.iqn: Invalid value: "iqn.a": must be valid format`}},
		{"a pod's secret without a name", pod("volumes: [{name: v, " + iscsi + "'iqn.2001-04.com.example:a', chapAuthSession: true, secretRef: {}}}], containers: [{name: c, image: i}]"), nil},
		{"an invalid volume cannot be mounted", mounting("volumes: [{name: v, secret: {}}]"), []string{"spec.volumes[0].secret.secretName: Required value", notFound}},
		{"emptyDir counts before hostPath", mounting("volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}]"), []string{"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type", notFound}},
		{"a projection with two sources", mounting("volumes: [{name: v, projected: {sources: [{secret: {name: a}, configMap: {name: b}}]}}]"), []string{"sources[0]: Forbidden: may not specify more than 1 volume type per source", notFound}},
		{"a disk without a name is a persistent disk", mounting("volumes: [{name: v, gcePersistentDisk: {}}]"), []string{"spec.volumes[0].persistentDisk.pdName: Required value", notFound}},
		{"an Azure disk with an invalid URI", mounting("volumes: [{name: v, azureDisk: {diskName: a, diskURI: b}}]"), []string{`azureDisk.diskURI: Unsupported value: "b": supported values: "https://`, notFound}},
		{"an invalid driver name is reported unchanged", mounting("volumes: [{name: v, csi: {driver: A_}}]"), []string{`csi.driver: Invalid value: "A_": a lowercase RFC 1123 subdomain`, notFound}},
		{"a driver's secret with an invalid name", mounting("volumes: [{name: v, csi: {driver: a, nodePublishSecretRef: {name: A_}}}]"), []string{`spec.volumes[0].csi.name: Invalid value: "A_"`, notFound}},
		{"an unknown mount propagation", env("volumeMounts: [{name: v, mountPath: /v, mountPropagation: x}]}], volumes: [{name: v, emptyDir: {}}], initContainers: [{name: d, image: i"), []string{`spec.containers[0].volumeMounts.mountPropagation: Unsupported value: "x"`}},
		{"a variable from a secret with an invalid name", env("env: [{name: A, valueFrom: {secretKeyRef: {name: A_, key: k}}}]"), []string{`valueFrom.secretKeyRef.name: Invalid value: "A_"`}},
		{"a variable from a ConfigMap without name", env("env: [{name: A, valueFrom: {configMapKeyRef: {key: k}}}]"), []string{`valueFrom.configMapKeyRef.name: Invalid value: ""`}},
		{"envFrom a ConfigMap with an invalid name", env("envFrom: [{configMapRef: {name: A_}}]"), []string{`envFrom[0].configMapRef.name: Invalid value: "A_"`}},
		{"a pod-level claim that the pod lacks", env("}], resources: {claims: [{name: x}]}, initContainers: [{name: d, image: i"), []string{"spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level", `spec.resources.claims[0]: Not found: "x"`}},
		{"an unknown pod-level resource", env("}], resources: {requests: {x: 1}}, initContainers: [{name: d, image: i"), []string{`spec.resources.requests[x]: Invalid value: "x": must be a standard resource type or fully qualified`}},
		{"a limit above the pod's", env("resources: {limits: {cpu: 4}}}], resources: {limits: {cpu: 1}}, initContainers: [{name: d, image: i"), []string{`spec.resources.requests: Invalid value: "4": must be less than or equal to cpu limit of 1`, `spec.resources.containers[0][cpu].limits: Invalid value: "4": must be less than or equal to pod limits of 1`}},
		{"a pull secret without a name", env("}], imagePullSecrets: [{name: ''}], initContainers: [{name: d, image: i"), nil},
		{"a token projection without a path", mounting("serviceAccountName: a, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {}}]}}]"), []string{"spec.volumes[0].projected.path: Required value", notFound}},
		{"a sleep that is too long", hook("sleep: {seconds: 31}"), []string{at + "Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"}},
		{"a sleep beside another action", hook("exec: {command: [a]}, sleep: {seconds: 65535}"), []string{at + "Forbidden: may not specify more than 1 handler type"}},
		{"claims of a mirror pod", "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {kubernetes.io/config.mirror: a}}\nspec: {nodeName: node, resourceClaims: [{name: a, resourceClaimName: b}], containers: [{name: c, image: i}]}\n",
			[]string{"[]: Forbidden: static pods do not support resource claims"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestStatusesOfPodsAreValidated(t *testing.T) {
	pod := func(status string) string {
		return "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}]}\nstatus: " + status + "\n"
	}
	cases := []struct {
		name, was, is string
		want          []string
	}{
		{"pod addresses with an invalid one", pod("{podIPs: [{ip: 10.0.0.1}]}"), pod("{podIPs: [{ip: 10.0.0.1}, {ip: 'a:x'}]}"), []string{"status.podIPs[1]: Invalid value", "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: a:x", "status.podIPs: Invalid value"}},
		{"a repeated address", pod("{}"), pod("{hostIP: 10.0.0.1, hostIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.1}]}"), []string{"status.hostIPs: Invalid value"}},
		{"a negative observedGeneration", pod("{}"), pod("{observedGeneration: -1}"), []string{"status.observedGeneration: Invalid value: -1: must be a non-negative integer"}},
		{"an unrequested device", pod("{}"), pod("{containerStatuses: [{name: c, allocatedResourcesStatus: [{name: cpu, resources: [{resourceID: a, health: x}]}, {name: 'claim:x'}]}]}"),
			[]string{`allocatedResourcesStatus[0].name: Invalid value: "cpu": must match one of the container's resource requests`, `allocatedResourcesStatus[0].resources[0].health: Unsupported value: "x"`, `allocatedResourcesStatus[1].name: Invalid value: "claim:x": must match one of the container's resource claims`}},
		{"a negative user ID", pod("{}"), pod("{containerStatuses: [{name: c, user: {linux: {uid: -1, gid: 0}}}]}"), []string{"status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.was)
			obj, _ := resourcetest.Read(t, rules.For, c.is)
			resourcetest.Expect(t, s.ValidateStatus(obj, old), c.want...)
		})
	}
}
