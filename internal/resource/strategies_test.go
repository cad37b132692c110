package resource

import (
	"encoding/json"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
)

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

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

// TestValidationSurvivesRandomObjects looks for panics.
func TestValidationSurvivesRandomObjects(t *testing.T) {
	for gr, s := range strategies {
		k, _ := api.ByResource(gr)
		k = hubOf(k)
		for seed := range int64(12) {
			obj, old := k.New(), k.New()
			newFiller(seed).Fill(obj)
			newFiller(seed + 500).Fill(old)
			if s.ValidateCreate != nil {
				_ = s.ValidateCreate(obj).ToAggregate()
			}
			if s.ValidateUpdate != nil {
				_ = s.ValidateUpdate(obj, old)
			}
			if s.ValidateStatus != nil {
				_ = s.ValidateStatus(obj, old)
			}
		}
	}
}
