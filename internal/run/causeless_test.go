package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/hollow"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

// scenario makes most controllers write.
const scenario = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota, namespace: shop}, spec: {hard: {pods: "50"}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: x, resources: {requests: {cpu: 10m}}}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 3
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: a, image: x}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log, namespace: shop}
spec:
  selector: {matchLabels: {app: log}}
  template: {metadata: {labels: {app: log}}, spec: {containers: [{name: a, image: x}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: shop}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec: {ttlSecondsAfterFinished: 0, template: {metadata: {labels: {job: once}}, spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}, storageClassName: manual}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all-of-it}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part: "yes"}}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: part, labels: {part: "yes"}}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
{apiVersion: v1, kind: Service, metadata: {name: manual, namespace: shop}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: manual, namespace: shop}, subsets: [{addresses: [{ip: 10.9.9.9}], ports: [{port: 80}]}]}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old, namespace: shop}
spec: {replicas: 1, selector: {app: old}, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: a, image: x}]}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: wrong}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "object.spec.nothing > 3"}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.far.example.com}
spec: {group: far.example.com, version: v1, groupPriorityMinimum: 10, versionPriority: 10, service: {name: far, namespace: default}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: far}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: far.example.com, volumeHandle: v}, storageClassName: far}}
---
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: far.example.com}, spec: {attachRequired: true}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: far, namespace: shop}, spec: {accessModes: [ReadWriteOnce], storageClassName: far, resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: far, namespace: shop}, spec: {containers: [{name: a, image: x}], volumes: [{name: v, persistentVolumeClaim: {claimName: far}}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, namespace: shop}}
`

// causeless lists the writes that no single write in the cluster causes.
var causeless = map[string]string{
	"system:apiserver clusterroles":                                    "objects of the start",
	"system:apiserver clusterrolebindings":                             "objects of the start",
	"system:apiserver roles":                                           "objects of the start",
	"system:apiserver rolebindings":                                    "objects of the start",
	"system:apiserver configmaps":                                      "objects of the start",
	"system:apiserver apiservices":                                     "all definitions of a group",
	"system:apiserver resourcequotas/status":                           "part of a request that is not committed yet",
	"local-volume-controller configmaps":                               "objects of the start",
	"local-volume-controller csidrivers":                               "objects of the start",
	"local-volume-controller storageclasses":                           "objects of the start",
	"node-account-controller serviceaccounts":                          "objects of the start",
	"architecture-controller customresourcedefinitions":                "objects of the start",
	"scheduler-plugin-definition-controller customresourcedefinitions": "objects of the start",
	"cronjob-controller cronjobs/status":                               "the time has come",
	"cronjob-controller jobs":                                          "the time has come",
	"ttl-after-finished-controller jobs":                               "the time has come",
}

// Each write of a component names its causes, but those of causeless.
func TestComponentsNameTheCausesOfTheirWrites(t *testing.T) {
	s := startServer(t, newConfig(t, "a"))
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
	}}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- hollow.Run(ctx, hollow.Config{
			Node: node, Client: s.client(t), Address: "10.88.1.1", PodRange: netip.MustParsePrefix("10.42.0.0/24"), Log: slog.New(slog.DiscardHandler),
		})
	}()
	defer func() { stop(); <-ended }()
	c := s.client(t)
	dyn, err := dynamic.NewForConfig(s.rest(t))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := c.Discovery(ctx)
	if err != nil {
		t.Fatal(err)
	}
	resourceOf := func(u *unstructured.Unstructured) dynamic.ResourceInterface {
		for _, l := range lists {
			for _, r := range l.APIResources {
				if l.GroupVersion == u.GetAPIVersion() && r.Kind == u.GetKind() && !strings.Contains(r.Name, "/") {
					gv, _ := schema.ParseGroupVersion(l.GroupVersion)
					if r.Namespaced {
						return dyn.Resource(gv.WithResource(r.Name)).Namespace(u.GetNamespace())
					}
					return dyn.Resource(gv.WithResource(r.Name))
				}
			}
		}
		t.Fatalf("no resource of %s", u.GetKind())
		return nil
	}
	var made []*unstructured.Unstructured
	for text := range strings.SplitSeq(scenario, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := resourceOf(u).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", u.GetName(), err)
		}
		made = append(made, u)
	}
	owner, err := client.Get[*corev1.ConfigMap](ctx, c, "shop", "owner")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(ctx, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pods run", func() error {
		list, err := c.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), "shop", metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range list.(*corev1.PodList).Items {
			if list.(*corev1.PodList).Items[i].Status.Phase == corev1.PodRunning {
				n++
			}
		}
		if n < 6 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	eventually(t, "the volume is to be attached", func() error {
		list, err := c.List(ctx, storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", metav1.ListOptions{})
		if err == nil && len(list.(*storagev1.VolumeAttachmentList).Items) == 0 {
			err = errors.New("no VolumeAttachment")
		}
		return err
	})
	if err := client.Delete[*corev1.ConfigMap](ctx, c, "shop", "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dependent is collected", func() error {
		_, err := client.Get[*corev1.ConfigMap](ctx, c, "shop", "owned")
		return mustBeGone(err)
	})
	foreground := metav1.DeletePropagationForeground
	if err := client.Delete[*appsv1.Deployment](ctx, c, "shop", "web", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment is gone", func() error {
		_, err := client.Get[*appsv1.Deployment](ctx, c, "shop", "web")
		return mustBeGone(err)
	})
	for _, u := range made {
		if u.GetKind() == "APIService" { // no namespace ends without discovery
			if err := resourceOf(u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := client.Delete[*corev1.Namespace](ctx, c, "", "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func() error {
		_, err := client.Get[*corev1.Namespace](ctx, c, "", "shop")
		return mustBeGone(err)
	})
	stop()
	s.end(t)

	log, err := causes.Open(causes.Options{Dir: s.cfg.Path("causes")})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	all := make([]int64, 20000)
	for i := range all {
		all[i] = int64(i + 1)
	}
	records, err := log.Forward(t.Context(), all, 0)
	if err != nil {
		t.Fatal(err)
	}
	found, total := map[string]int{}, 0
	for _, r := range records {
		if !causes.IsComponent(r.Actor) {
			continue
		}
		total++
		what := r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		maker := strings.TrimPrefix(r.Actor, "system:serviceaccount:kube-system:")
		if r.Because.Len() == 0 && causeless[maker+" "+what] == "" {
			found[maker+" "+r.Verb+" "+what]++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%d × %s names no cause", found[text], text)
	}
	t.Logf("%d writes of components, of %d", total, len(records))
}

func mustBeGone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("it is there")
	}
	return err
}
