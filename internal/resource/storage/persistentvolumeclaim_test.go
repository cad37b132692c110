package storage_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestDataSourcesOfClaimsAreClaimsOrSnapshots(t *testing.T) {
	cases := []struct {
		name, source string
		kept         bool
	}{
		{"a claim", "dataSource: {kind: PersistentVolumeClaim, name: c}", true},
		{"a snapshot", "dataSource: {kind: VolumeSnapshot, name: s, apiGroup: snapshot.storage.k8s.io}", true},
		{"anything else", "dataSource: {kind: Other, name: o, apiGroup: a.example}", false},
		{"anything else by reference", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example}", true},
		{"something of another namespace", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example, namespace: b}", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {"+c.source+"}\n")
			s.PrepareCreate(obj)
			if claim := obj.(*corev1.PersistentVolumeClaim); (claim.Spec.DataSourceRef != nil) != c.kept {
				t.Errorf("%v, %v", claim.Spec.DataSource, claim.Spec.DataSourceRef)
			}
		})
	}
}

func TestUpdatesOfClaimsWithoutDataSourceDropItAsCreatesDo(t *testing.T) {
	for _, c := range []struct {
		name, had, source string
		kept              bool
	}{
		{"something of another namespace", "", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example, namespace: b}", false},
		{"anything else", "", "dataSource: {kind: Other, name: o, apiGroup: a.example}", false},
		{"a claim", "", "dataSource: {kind: PersistentVolumeClaim, name: c}", true},
		{"something of another namespace, where there was a claim", "dataSource: {kind: PersistentVolumeClaim, name: c}", "dataSourceRef: {kind: Other, name: o, apiGroup: a.example, namespace: b}", true},
	} {
		old, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {"+c.had+"}\n")
		obj, _ := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {"+c.source+"}\n")
		s.PrepareUpdate(obj, old)
		if claim := obj.(*corev1.PersistentVolumeClaim); (claim.Spec.DataSourceRef != nil) != c.kept {
			t.Errorf("%s: %v, %v", c.name, claim.Spec.DataSource, claim.Spec.DataSourceRef)
		}
	}
}

func TestStatusesOfPersistentVolumeClaimsAreValidated(t *testing.T) {
	cases := []struct {
		name   string
		status corev1.PersistentVolumeClaimStatus
		want   []string
	}{
		{"modes are not looked at", corev1.PersistentVolumeClaimStatus{AccessModes: []corev1.PersistentVolumeAccessMode{"x"}}, nil},
		{"a negative quantity", corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{"storage": resource.MustParse("-1")}}, []string{"status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"}},
		{"a resource that claims cannot have", corev1.PersistentVolumeClaimStatus{AllocatedResources: corev1.ResourceList{"cpu": resource.MustParse("1"), "a.example/b": resource.MustParse("1")}}, []string{`status.allocatedResources: Unsupported value: "cpu": supported values: "storage"`}},
		{"an unknown resize status", corev1.PersistentVolumeClaimStatus{AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "x"}}, []string{`status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {resourceVersion: '1'}\nspec: {accessModes: [ReadWriteOnce]}\n")
			claim := old.DeepCopyObject().(*corev1.PersistentVolumeClaim)
			claim.Status = c.status
			resourcetest.Expect(t, s.ValidateStatus(claim, old), c.want...)
		})
	}
}

func TestFieldsOfNewPersistentVolumeClaimsAreValidated(t *testing.T) {
	meta := func(kind string) string {
		versions := map[string]string{"Ingress": "networking.k8s.io/v1", "IngressClass": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1", "ServiceCIDR": "networking.k8s.io/v1", "IPAddress": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
		version := versions[kind]
		if version == "" {
			version = "v1"
		}
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n", version, kind)
	}
	cases := []struct {
		name, kind, body string
		want             []string
	}{
		{"a claim of no size", "PersistentVolumeClaim", "spec: {accessModes: [ReadWriteOnce]}", []string{"spec.resources[storage]: Required value"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewPersistentVolumeClaimsAreValidated(t *testing.T) {
	claim := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {" + spec + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"ReadWriteOncePod beside an unknown and a known mode", claim("accessModes: [x, ReadWriteMany, ReadWriteOncePod], resources: {requests: {storage: 1Gi}}"), []string{`spec.accessModes: Unsupported value: "x"`, "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"}},
		{"an unknown mode beside ReadWriteOncePod", claim("accessModes: [x, ReadWriteOncePod], resources: {requests: {storage: 1Gi}}"), []string{`spec.accessModes: Unsupported value: "x"`}},
		{"a claim with a negative size", claim("accessModes: [ReadWriteOnce], resources: {requests: {storage: '-1'}}"), []string{`spec.resources[storage]: Invalid value: "-1": must be greater than zero`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestUpdatesOfPersistentVolumeClaimsAreValidated(t *testing.T) {
	claim := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, " + spec + "}\nstatus: {phase: Pending}\n"
	}
	const immutable = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
	bound := func(requests string) string {
		return "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {" + requests + "}}}\nstatus: {phase: Bound}\n"
	}
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"an unbound claim gets an attributes class", claim("volumeMode: Filesystem"), claim("volumeMode: Filesystem, volumeAttributesClassName: a"), []string{immutable}},
		{"an unbound claim with a volume name gets a class", claim("volumeName: a"), claim("volumeName: a, storageClassName: b"), nil},
		{"a claim with an annotated class gets another one", strings.Replace(claim("volumeName: a"), "spec", "metadata: {annotations: {volume.beta.kubernetes.io/storage-class: a}}\nspec", 1), claim("volumeName: a, storageClassName: b"), []string{immutable}},
		{"a bound claim requests another resource", bound("storage: 1Gi"), bound("storage: 2Gi, cpu: 1"), []string{immutable}},
		{"a bound claim is expanded", bound("storage: 1Gi"), bound("storage: 2Gi"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestUpdatesOfPersistentVolumeClaimsKeepFields(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"a claim's class", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {storageClassName: a, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {storageClassName: b, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
			[]string{"spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "---\n"+c.before)
			obj, _ := resourcetest.Read(t, rules.For, "---\n"+c.after)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestWarningsOfPersistentVolumeClaims(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a claim with the class annotation and fractions of a byte", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {annotations: {volume.beta.kubernetes.io/storage-class: a}}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1500m}, limits: {storage: 2500m}}}\n", []string{
			`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`,
			`spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`, `spec.resources.limits[storage]: fractional byte value "2500m" is invalid, must be an integer`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
