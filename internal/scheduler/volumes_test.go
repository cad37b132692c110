package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/volume"
	"github.com/knarr-project/knarr/internal/scheduler"
)

// start runs an API server with a scheduler, controllers and nodes.
func start(t *testing.T, nodes []string, controllers ...controller.Starter) *controllertest.Cluster {
	c := controllertest.New(t)
	for _, name := range nodes {
		controllertest.Retry(c, controllertest.Node(c, name, map[string]string{corev1.LabelHostname: name}), func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10"),
			}
		}, "status")
	}
	c.Run(append(controllers, controller.Starter{Name: "scheduler", Run: func(ctx context.Context, env controller.Env) error {
		return scheduler.New(scheduler.Config{Client: env.Client, Events: env.Events}).Run(ctx)
	}})...)
	return c
}

func newClass(c *controllertest.Cluster, name, provisioner string, mode storagev1.VolumeBindingMode) {
	controllertest.Create(c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode})
}

func newClaim(c *controllertest.Cluster, name, class string) *corev1.PersistentVolumeClaim {
	return controllertest.Create(c, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}})
}

// newVolume creates a volume on a node for a claim; nil means for any claim.
func newVolume(c *controllertest.Cluster, name, class, node string, claim *corev1.PersistentVolumeClaim) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: class,
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/tmp/x"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}},
	}}
	if claim != nil {
		v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	}
	controllertest.Create(c, v)
}

func newPod(c *controllertest.Cluster, name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: controllertest.Template(name).Spec}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return controllertest.Create(c, p)
}

// podIs waits until the pod is on the node. Without a node it waits for the message of the pod's
// condition.
func podIs(t *testing.T, c *controllertest.Cluster, name, node, message string) {
	t.Helper()
	c.Eventually("the pod is on "+node+message, func() string {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", name)
		if err != nil {
			return err.Error()
		}
		condition := controller.PodCondition(p, corev1.PodScheduled)
		if p.Spec.NodeName != node || node == "" && (condition == nil || !strings.Contains(condition.Message, message)) {
			return fmt.Sprintf("on %q: %+v", p.Spec.NodeName, condition)
		}
		return ""
	})
}

func selected(t *testing.T, c *controllertest.Cluster, claim, node string) {
	t.Helper()
	c.Eventually("the claim is for "+node, func() string {
		pvc, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", claim)
		if err != nil || pvc.Annotations["volume.kubernetes.io/selected-node"] != node {
			return fmt.Sprint(err, pvc.Annotations)
		}
		return ""
	})
}

// nominatedIs waits until the pod's status names the node.
func nominatedIs(t *testing.T, c *controllertest.Cluster, name, node string) {
	t.Helper()
	c.Eventually("the pod is expected on "+node, func() string {
		p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", name)
		if err != nil || p.Status.NominatedNodeName != node {
			return fmt.Sprint(err, p.Status.NominatedNodeName)
		}
		return ""
	})
}

func TestAPodIsBoundAfterItsClaimGotTheChosenVolume(t *testing.T) {
	c := start(t, []string{"a", "b"}, volume.Binder)
	newClass(c, "local", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer)
	claim := newClaim(c, "data", "local")
	newPod(c, "p", "data")
	podIs(t, c, "p", "", "2 node(s) didn't find available persistent volumes to bind")
	newVolume(c, "v", "local", "b", nil)
	podIs(t, c, "p", "b", "")
	pvc, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", claim.Name)
	if err != nil || pvc.Spec.VolumeName != "v" || pvc.Annotations["pv.kubernetes.io/bind-completed"] == "" {
		t.Errorf("%v: the pod was bound before its claim: %+v", err, pvc)
	}
}

func TestAPodWaitsUntilItsImmediateClaimIsBound(t *testing.T) {
	c := start(t, []string{"a"}, volume.Binder)
	newClass(c, "now", "example.com/csi", storagev1.VolumeBindingImmediate)
	newPod(c, "p", "data")
	podIs(t, c, "p", "", `persistentvolumeclaim "data" not found`)
	newClaim(c, "data", "now")
	podIs(t, c, "p", "", "pod has unbound immediate PersistentVolumeClaims")
	newVolume(c, "v", "now", "a", nil)
	podIs(t, c, "p", "a", "")
}

func TestAClaimIsProvisionedForThePodsNode(t *testing.T) {
	c := start(t, []string{"a"}, volume.Binder)
	newClass(c, "csi", "example.com/csi", storagev1.VolumeBindingWaitForFirstConsumer)
	claim := newClaim(c, "data", "csi")
	p := newPod(c, "p", "data")
	selected(t, c, "data", "a")
	if fresh, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", p.Name); err != nil || fresh.Spec.NodeName != "" {
		t.Errorf("%v: bound to %q before there is a volume", err, fresh.Spec.NodeName)
	}
	nominatedIs(t, c, "p", "a")
	newVolume(c, "v", "csi", "a", claim) // as a provisioner does
	podIs(t, c, "p", "a", "")
	nominatedIs(t, c, "p", "")
}

func TestAPodIsDecidedAgainIfItsProvisionerHasNoRoom(t *testing.T) {
	c := start(t, []string{"a"}, volume.Binder)
	newClass(c, "csi", "example.com/csi", storagev1.VolumeBindingWaitForFirstConsumer)
	claim := newClaim(c, "data", "csi")
	newPod(c, "p", "data")
	selected(t, c, "data", "a")
	controllertest.Retry(c, claim, func(pvc *corev1.PersistentVolumeClaim) { delete(pvc.Annotations, "volume.kubernetes.io/selected-node") })
	c.Eventually("the pod has an event about the failure", func() string {
		for _, e := range c.Events.List() {
			if strings.Contains(e, `FailedScheduling running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"`) {
				return ""
			}
		}
		return fmt.Sprint(c.Events.List())
	})
	selected(t, c, "data", "a")
	newVolume(c, "v", "csi", "a", claim)
	podIs(t, c, "p", "a", "")
}

func TestADeletedClaimRemovesThePodsNomination(t *testing.T) {
	c := start(t, []string{"a"}, volume.Binder)
	newClass(c, "csi", "example.com/csi", storagev1.VolumeBindingWaitForFirstConsumer)
	newClaim(c, "data", "csi")
	newPod(c, "p", "data")
	nominatedIs(t, c, "p", "a")
	if err := client.Delete[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	nominatedIs(t, c, "p", "")
	podIs(t, c, "p", "", `persistentvolumeclaim "data" not found`)
}

func TestPodsThatShareAClaimGoToOneNode(t *testing.T) {
	c := start(t, []string{"a", "b", "c"}, volume.Binder)
	newClass(c, "csi", "example.com/csi", storagev1.VolumeBindingWaitForFirstConsumer)
	claim := newClaim(c, "data", "csi")
	for i := range 5 {
		newPod(c, fmt.Sprintf("p%d", i), "data")
	}
	var node string
	c.Eventually("a node is chosen", func() string {
		pvc, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data")
		if err != nil {
			return err.Error()
		}
		if node = pvc.Annotations["volume.kubernetes.io/selected-node"]; node == "" {
			return "none yet"
		}
		return ""
	})
	newVolume(c, "v", "csi", node, claim)
	for i := range 5 {
		podIs(t, c, fmt.Sprintf("p%d", i), node, "")
	}
}
