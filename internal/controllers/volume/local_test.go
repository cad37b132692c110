package volume_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/volume"
	"github.com/knarr-project/knarr/internal/volume/local"
)

const gib = 1 << 30

// node is a node as its reports show it; tests write the reports.
type node struct {
	t      *testing.T
	c      *controllertest.Cluster
	name   string
	report local.Report
}

func newNode(t *testing.T, c *controllertest.Cluster, name string, size int64) *node {
	t.Helper()
	n := &node{t, c, name, local.Report{
		Folders: map[string]local.Folder{local.DefaultFolder: {Path: "/volumes", Size: size, Room: size}}, Volumes: map[string]local.Answer{},
	}}
	object := controllertest.Create(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
	object = object.DeepCopy()
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := client.UpdateStatus(t.Context(), c.Client, object); err != nil {
		t.Fatal(err)
	}
	n.write()
	return n
}

func (n *node) write() {
	n.t.Helper()
	text, err := json.Marshal(n.report)
	if err != nil {
		n.t.Fatal(err)
	}
	object, err := client.Get[*corev1.Node](n.t.Context(), n.c.Client, "", n.name)
	if err != nil {
		n.t.Fatal(err)
	}
	controllertest.Retry(n.c, object, func(o *corev1.Node) {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[local.ReportAnnotation] = string(text)
	})
}

func (n *node) answer(volume string, a local.Answer) {
	n.t.Helper()
	n.report.Volumes[volume] = a
	n.write()
}

func startLocal(t *testing.T) *controllertest.Cluster {
	c := controllertest.New(t)
	c.Config.LocalStorage = true
	c.Run(volume.Binder, volume.Local, volume.ClaimProtection, volume.VolumeProtection)
	c.Eventually("the first class", func() string {
		_, err := client.Get[*storagev1.StorageClass](t.Context(), c.Client, "", volume.FirstClass)
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return c
}

func selectNode(c *controllertest.Cluster, claim *corev1.PersistentVolumeClaim, node string) {
	controllertest.Retry(c, claim, func(p *corev1.PersistentVolumeClaim) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations["volume.kubernetes.io/selected-node"] = node
	})
}

func pendingIs(t *testing.T, c *controllertest.Cluster, name, step string) func() string {
	return func() string {
		v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", name)
		if err != nil || v.Annotations[local.PendingAnnotation] != step {
			return fmt.Sprintf("%v, annotations %v", err, v)
		}
		return ""
	}
}

func volumeGone(t *testing.T, c *controllertest.Cluster, name string) func() string {
	return func() string {
		if v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", name); err == nil {
			return fmt.Sprintf("it is there: %v %s", v.Finalizers, v.Status.Phase)
		}
		return ""
	}
}

func TestALocalVolumeIsMadeBoundGrownAndRemoved(t *testing.T) {
	c := startLocal(t)
	n := newNode(t, c, "one", 10*gib)
	claim := newClaim(c, "data", "1Gi", volume.FirstClass)
	name := "pvc-" + string(claim.UID)
	selectNode(c, claim, "one")
	c.Eventually("the node is asked", pendingIs(t, c, name, local.PendingMake))
	c.Eventually("the claim waits", claimIs(t, c, "data", corev1.ClaimPending, ""))
	v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", name)
	if err != nil {
		t.Fatal(err)
	}
	if v.Labels[local.NodeLabel] != "one" || v.Spec.Local.Path != "/volumes/"+name || v.Annotations[local.KindAnnotation] != string(local.Plain) {
		t.Errorf("the volume is %+v", v)
	}
	n.answer(name, local.Answer{State: local.Ready, Bytes: gib})
	c.Eventually("bound", claimIs(t, c, "data", corev1.ClaimBound, name))

	grow := resource.MustParse("3Gi")
	controllertest.Retry(c, claim, func(p *corev1.PersistentVolumeClaim) { p.Spec.Resources.Requests[corev1.ResourceStorage] = grow })
	c.Eventually("the node is asked to grow it", pendingIs(t, c, name, local.PendingGrow))
	n.answer(name, local.Answer{State: local.Ready, Bytes: 3 * gib})
	c.Eventually("the claim is larger", func() string {
		p, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data")
		if err != nil || p.Status.Capacity.Storage().Cmp(grow) != 0 || len(p.Status.Conditions) > 0 {
			return fmt.Sprintf("%v %+v", err, p.Status)
		}
		return ""
	})

	if err := client.Delete[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the volume is deleted, and waits for its node", func() string {
		v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", name)
		if err != nil || v.DeletionTimestamp == nil {
			return fmt.Sprint(err)
		}
		return ""
	})
	n.answer(name, local.Answer{State: local.Removed})
	c.Eventually("gone", volumeGone(t, c, name))
}

// A growth that its node cannot do must not keep the claim from ever growing.
func TestAFailedGrowthCanBeMadeSmaller(t *testing.T) {
	c := startLocal(t)
	n := newNode(t, c, "one", 10*gib)
	claim := newClaim(c, "data", "1Gi", volume.FirstClass)
	name := "pvc-" + string(claim.UID)
	selectNode(c, claim, "one")
	c.Eventually("the node is asked", pendingIs(t, c, name, local.PendingMake))
	n.answer(name, local.Answer{State: local.Ready, Bytes: gib})
	c.Eventually("bound", claimIs(t, c, "data", corev1.ClaimBound, name))
	request := func(size string) {
		controllertest.Retry(c, claim, func(p *corev1.PersistentVolumeClaim) {
			p.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
		})
	}
	request("8Gi")
	c.Eventually("the node is asked to grow it", pendingIs(t, c, name, local.PendingGrow))
	n.answer(name, local.Answer{State: local.Failed, Message: "no space left on device"})
	request("2Gi")
	c.Eventually("the node is asked for less", func() string {
		v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", name)
		if err != nil || v.Spec.Capacity.Storage().Value() != 2*gib || v.Annotations[local.PendingAnnotation] != local.PendingGrow {
			return fmt.Sprint(err, v)
		}
		return ""
	})
	n.answer(name, local.Answer{State: local.Ready, Bytes: 2 * gib})
	c.Eventually("the claim has what it requests", func() string {
		p, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data")
		if err != nil || p.Status.Capacity.Storage().Value() != 2*gib || p.Status.AllocatedResources.Storage().Value() != 2*gib || len(p.Status.Conditions) > 0 {
			return fmt.Sprintf("%v %+v", err, p.Status)
		}
		return ""
	})
}

func TestAVolumeThatTheNodeCannotMakeGoesBackToTheScheduler(t *testing.T) {
	for problem, report := range map[string]func(n *node, volume string){
		"the node says so": func(n *node, volume string) {
			n.answer(volume, local.Answer{State: local.Failed, Message: "no space left on device"})
		},
		"the node is gone": func(n *node, _ string) {
			if err := client.Delete[*corev1.Node](n.t.Context(), n.c.Client, "", n.name, metav1.DeleteOptions{}); err != nil {
				n.t.Fatal(err)
			}
		},
	} {
		t.Run(problem, func(t *testing.T) {
			c := startLocal(t)
			n := newNode(t, c, "one", 10*gib)
			claim := newClaim(c, "data", "1Gi", volume.FirstClass)
			name := "pvc-" + string(claim.UID)
			selectNode(c, claim, "one")
			c.Eventually("the node is asked", pendingIs(t, c, name, local.PendingMake))
			report(n, name)
			c.Eventually("the scheduler chooses again", func() string {
				p, err := client.Get[*corev1.PersistentVolumeClaim](t.Context(), c.Client, "default", "data")
				if err != nil || p.Annotations["volume.kubernetes.io/selected-node"] != "" {
					return fmt.Sprint(err, p.Annotations)
				}
				return ""
			})
			if problem == "the node says so" {
				n.answer(name, local.Answer{State: local.Removed})
			}
			c.Eventually("gone", volumeGone(t, c, name))
		})
	}
}

func TestCapacitiesFollowTheVolumes(t *testing.T) {
	c := startLocal(t)
	n := newNode(t, c, "one", 10*gib)
	capacity := func(want string) func() string {
		return func() string {
			list, err := c.Client.List(t.Context(), storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"), "kube-system", metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			items := list.(*storagev1.CSIStorageCapacityList).Items
			if len(items) != 1 || items[0].Capacity.String() != want {
				return fmt.Sprintf("%+v", items)
			}
			return ""
		}
	}
	c.Eventually("an empty node", capacity("10Gi"))
	claim := newClaim(c, "data", "4Gi", volume.FirstClass)
	selectNode(c, claim, "one")
	c.Eventually("a volume takes its size", capacity("6Gi"))
	large := newClaim(c, "large", "7Gi", volume.FirstClass)
	selectNode(c, large, "one")
	c.Eventually("a claim that does not fit", func() string {
		for _, e := range c.Events.List() {
			if strings.Contains(e, "it has 6Gi left in /volumes, and the claim requests 7Gi") {
				return ""
			}
		}
		return fmt.Sprint(c.Events.List())
	})
	n.report.Folders = nil
	n.write()
	c.Eventually("a node without folders", func() string {
		if capacity("")() == "[]" {
			return ""
		}
		return capacity("")()
	})
}

func TestTheFirstClassDoesNotComeBack(t *testing.T) {
	c := startLocal(t)
	c.Eventually("the marker", func() string {
		_, err := client.Get[*corev1.ConfigMap](t.Context(), c.Client, "kube-system", "knarr-local-storage")
		if err != nil {
			return err.Error()
		}
		return ""
	})
	if err := client.Delete[*storagev1.StorageClass](t.Context(), c.Client, "", volume.FirstClass, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Run(volume.Local) // as after a restart
	claim := newClaim(c, "data", "1Gi", volume.FirstClass)
	c.Eventually("a claim of the class waits", claimIs(t, c, claim.Name, corev1.ClaimPending, ""))
	if _, err := client.Get[*storagev1.StorageClass](t.Context(), c.Client, "", volume.FirstClass); err == nil {
		t.Error("the class is back")
	}
}

func TestAClaimThatIsBoundAtOnceGetsTheRoomiestNode(t *testing.T) {
	c := startLocal(t)
	newNode(t, c, "small", 2*gib)
	newNode(t, c, "large", 9*gib)
	immediate := storagev1.VolumeBindingImmediate
	controllertest.Create(c, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "now"}, Provisioner: local.Provisioner, VolumeBindingMode: &immediate})
	claim := newClaim(c, "data", "1Gi", "now")
	c.Eventually("a node is chosen", func() string {
		v, err := client.Get[*corev1.PersistentVolume](t.Context(), c.Client, "", "pvc-"+string(claim.UID))
		if err != nil || v.Annotations[local.NodeAnnotation] != "large" {
			return fmt.Sprint(err, v)
		}
		return ""
	})
}
