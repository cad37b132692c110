package resource

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
)

func TestEveryStoredKindHasAStrategy(t *testing.T) {
	known := map[schema.GroupResource]bool{}
	for _, k := range api.Kinds() {
		known[k.GroupResource()] = true
		if k.Virtual {
			continue
		}
		if For(k.GroupResource()) == nil {
			t.Errorf("%s has none", k.GroupResource())
		}
	}
	for gr := range strategies {
		if !known[gr] {
			t.Errorf("%s is not in the table of kinds", gr)
		}
	}
}

// hubOf returns the kind whose hub type the strategy of k works on.
func hubOf(k *api.Kind) *api.Kind {
	if k.Alias != (schema.GroupResource{}) {
		target, _ := api.ByResource(k.Alias)
		return target
	}
	return k
}

func TestDefaultsAndPrepareOfRandomObjects(t *testing.T) {
	for gr, s := range strategies {
		k, _ := api.ByResource(gr)
		k = hubOf(k)
		t.Run(gr.String(), func(t *testing.T) {
			for seed := range int64(25) {
				obj, old := k.New(), k.New()
				newFiller(seed).Fill(obj)
				newFiller(seed + 1000).Fill(old)
				if s.Default != nil {
					s.Default(obj)
					s.Default(old)
					again := obj.DeepCopyObject()
					s.Default(again)
					if !apiequality.Semantic.DeepEqual(obj, again) {
						a, _ := json.Marshal(obj)
						b, _ := json.Marshal(again)
						t.Fatalf("seed %d: defaulting twice changes more:\n%s\n%s", seed, a, b)
					}
				}
				before := old.DeepCopyObject()
				if s.PrepareUpdate != nil {
					s.PrepareUpdate(obj.DeepCopyObject(), old)
				}
				if s.PrepareStatus != nil {
					s.PrepareStatus(obj.DeepCopyObject(), old)
				}
				for _, sub := range s.Subresource {
					if sub.Prepare != nil {
						sub.Prepare(obj.DeepCopyObject(), old)
					}
				}
				if !apiequality.Semantic.DeepEqual(old, before) {
					t.Fatalf("seed %d: the old object, which is shared, was changed", seed)
				}
				if s.PrepareCreate != nil {
					s.PrepareCreate(obj)
				}
				if s.Fields == nil {
					continue
				}
				for name := range s.Fields(obj) {
					if !contains(s.FieldNames, name) {
						t.Fatalf("field %s is not in FieldNames", name)
					}
				}
			}
		})
	}
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func newFiller(seed int64) *randfill.Filler {
	return randfill.New().RandSource(rand.NewSource(seed)).NilChance(.4).NumElements(1, 2).MaxDepth(14).Funcs(
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = metav1.Unix(c.Int63n(1<<31), 0).Time },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewScaledQuantity(c.Int63n(100000)-1000, resource.Micro)
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			*i = intstr.FromInt32(c.Int31n(3))
			if c.Bool() {
				*i = intstr.FromString("x")
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:a":{}}`) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
	)
}

// TestDefaults compares short manifests with their defaulted form.
func TestDefaults(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"a pod", `
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  serviceAccount: robot
  volumes: [{name: e}, {name: s, secret: {secretName: x}}, {name: h, hostPath: {path: /}}]
  containers:
  - name: c
    image: nginx
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 1500u}}
    env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    readinessProbe: {httpGet: {port: 80}}
    livenessProbe: {grpc: {port: 80}}
  - {name: d, image: "localhost:5000/nginx:1"}
  - {name: e, image: "nginx@sha256:00"}
`, `
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  serviceAccount: robot
  serviceAccountName: robot
  terminationGracePeriodSeconds: 30
  volumes:
  - {name: e, emptyDir: {}}
  - {name: s, secret: {secretName: x, defaultMode: 420}}
  - {name: h, hostPath: {path: /, type: ""}}
  containers:
  - name: c
    image: nginx
    imagePullPolicy: Always
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    ports: [{containerPort: 80, protocol: TCP}]
    resources: {limits: {cpu: 2m}, requests: {cpu: 2m}}
    env: [{name: IP, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}]
    readinessProbe: {httpGet: {path: /, port: 80, scheme: HTTP}, failureThreshold: 3, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}
    livenessProbe: {grpc: {port: 80, service: ""}, failureThreshold: 3, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}
  - {name: d, image: "localhost:5000/nginx:1", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, resources: {}}
  - {name: e, image: "nginx@sha256:00", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, resources: {}}
status: {}
`},
		{"a pod on the host network publishes its ports there", `
apiVersion: v1
kind: Pod
spec:
  hostNetwork: true
  containers: [{name: c, ports: [{containerPort: 80, protocol: UDP}], imagePullPolicy: Never, terminationMessagePath: x, terminationMessagePolicy: File}]
`, `
apiVersion: v1
kind: Pod
metadata: {}
spec:
  hostNetwork: true
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  terminationGracePeriodSeconds: 30
  containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, protocol: UDP}], imagePullPolicy: Never, terminationMessagePath: x, terminationMessagePolicy: File, resources: {}}]
status: {}
`},
		{"a service", `
apiVersion: v1
kind: Service
spec: {ports: [{port: 80}], sessionAffinity: ClientIP, type: LoadBalancer}
`, `
apiVersion: v1
kind: Service
metadata: {}
spec:
  allocateLoadBalancerNodePorts: true
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ports: [{port: 80, protocol: TCP, targetPort: 80}]
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}
  type: LoadBalancer
status: {loadBalancer: {}}
`},
		{"a deployment", `
apiVersion: apps/v1
kind: Deployment
spec: {template: {spec: {hostNetwork: true, containers: [{name: c, image: "a:1", ports: [{containerPort: 1}]}]}}}
`, `
apiVersion: apps/v1
kind: Deployment
metadata: {}
spec:
  progressDeadlineSeconds: 600
  replicas: 1
  revisionHistoryLimit: 10
  selector: null
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}
  template:
    metadata: {}
    spec:
      hostNetwork: true
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      schedulerName: default-scheduler
      securityContext: {}
      terminationGracePeriodSeconds: 30
      containers: [{name: c, image: "a:1", imagePullPolicy: IfNotPresent, ports: [{containerPort: 1, protocol: TCP}], resources: {}, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}]
status: {}
`},
		{"limits of containers", `
apiVersion: v1
kind: LimitRange
spec: {limits: [{type: Container, max: {cpu: "2"}, min: {memory: 1Mi}}, {type: Pod, max: {cpu: "2"}}]}
`, `
apiVersion: v1
kind: LimitRange
metadata: {}
spec:
  limits:
  - {type: Container, max: {cpu: "2"}, min: {memory: 1Mi}, default: {cpu: "2"}, defaultRequest: {cpu: "2", memory: 1Mi}}
  - {type: Pod, max: {cpu: "2"}}
`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, gvk, err := api.Codecs.UniversalDeserializer().Decode([]byte(c.in), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			k, _ := api.ByKind(gvk.GroupKind())
			For(k.GroupResource()).Default(obj)
			got, _ := json.Marshal(obj)
			want, err := yaml.YAMLToJSON([]byte(c.want))
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !apiequality.Semantic.DeepEqual(a, b) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	cases := []struct {
		name             string
		requests, limits corev1.ResourceList
		want             corev1.PodQOSClass
	}{
		{"nothing asked", nil, nil, corev1.PodQOSBestEffort},
		{"zero is nothing", list("0", "0"), list("0", "0"), corev1.PodQOSBestEffort},
		{"a request", list("1", ""), nil, corev1.PodQOSBurstable},
		{"only one resource limited", list("1", ""), list("1", ""), corev1.PodQOSBurstable},
		{"limits equal to requests", list("1", "1Gi"), list("1000m", "1Gi"), corev1.PodQOSGuaranteed},
		{"limits above requests", list("1", "1Gi"), list("2", "1Gi"), corev1.PodQOSBurstable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}}}}}
			if got := QOSClass(p); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The wanted values are those of upstream's API server for the same pods (KEP-2837).
func TestAPodThatIsLimitedAsAWholeRequestsWhatItsContainersDo(t *testing.T) {
	cases := []struct{ name, pod, container, want string }{
		{"nothing is limited", "{requests: {cpu: 1}}", "{requests: {memory: 1Gi}}", "map[cpu:1]"},
		{"another resource is limited", "{limits: {cpu: 1}, requests: {cpu: 1}}", "{requests: {memory: 1Gi}}", "map[cpu:1 memory:1Gi]"},
		{"the containers request what is limited", "{limits: {cpu: 2}}", "{requests: {cpu: 1, memory: 1Gi}}", "map[cpu:1 memory:1Gi]"},
		{"the containers only have limits", "{limits: {memory: 2Gi}}", "{limits: {cpu: 1}}", "map[cpu:1 memory:2Gi]"},
		{"huge pages are requested as they are limited", "{limits: {cpu: 1, hugepages-2Mi: 4Mi}}", "{requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}", "map[cpu:1 hugepages-2Mi:4Mi]"},
		{"huge pages of the containers alone", "{limits: {cpu: 1}}", "{requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}", "map[cpu:1]"},
		{"what a pod has no limits of", "{limits: {cpu: 1}}", "{requests: {ephemeral-storage: 1Gi}}", "map[cpu:1]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, _ := read(t, "apiVersion: v1\nkind: Pod\nspec: {resources: "+c.pod+", containers: [{name: c, image: i, resources: "+c.container+"}]}\n")
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
