package storage_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestFieldsOfNewPersistentVolumesAreValidated(t *testing.T) {
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
		{"a volume of no kind", "PersistentVolume", "spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}", []string{"spec: Required value: must specify a volume type"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, meta(c.kind)+c.body)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewPersistentVolumesAreValidated(t *testing.T) {
	pv := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + spec + "}\n"
	}
	const iscsi = "iscsi: {targetPortal: a, lun: 0, iqn: "
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"of two volume sources the first counts", "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: '-1'}, accessModes: [ReadWriteOnce], nfs: {server: a, path: /b}, flocker: {}}\n", []string{
			"spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity", "spec.capacity[storage]: Invalid value:", "spec.flocker: Required value: one of datasetName and datasetUUID is required", "spec.nfs: Forbidden: may not specify more than 1 volume type"}},
		{"mount options of a volume without support", strings.Replace(pv("hostPath: {path: /a}"), "spec", "metadata: {annotations: {volume.beta.kubernetes.io/mount-options: a}}\nspec", 1), []string{"metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"}},
		{"mount options of a volume with support", strings.Replace(pv("nfs: {server: a, path: /b}"), "spec", "metadata: {annotations: {volume.beta.kubernetes.io/mount-options: a}}\nspec", 1), nil},
		{"an iSCSI target and initiator of a volume without a known form", pv(iscsi + "a, initiatorName: b}"), []string{`spec.iscsi.iqn: Invalid value: "a": must be valid format`, `spec.iscsi.initiatorname: Invalid value: "b": must be valid format`}},
		{"a volume's secret without a name", pv(iscsi + "'iqn.2001-04.com.example:a', secretRef: {}}"), []string{"spec.iscsi.secretRef.name: Required value"}},
		{"an invalid partition", pv("awsElasticBlockStore: {volumeID: a, partition: 256}"), []string{"spec.awsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive"}},
		{"WWNs and WWIDs together, without a LUN", pv("fc: {targetWWNs: [a], wwids: [b]}"), []string{"spec.fc.targetWWNs: Invalid value", "spec.fc.lun: Required value: lun is required if targetWWNs is specified"}},
		{"a registry with two ports", pv("quobyte: {registry: 'a:1:2', volume: b}"), []string{`spec.quobyte.registry: Invalid value: "a:1:2": must be a host:port pair or multiple pairs separated by commas`}},
		{"a volume's secret without a namespace", pv("storageos: {volumeName: a, secretRef: {name: b}}"), []string{"spec.storageos.secretRef.namespace: Required value"}},
		{"a Glusterfs volume with an empty endpoints namespace", pv("glusterfs: {endpoints: a, path: b, endpointsNamespace: ''}"), []string{`spec.glusterfs.endpointsNamespace: Invalid value: "": if the endpointnamespace is set, it must be a valid namespace name`}},
		{"several volume sources, one in upstream's spelling", pv("csi: {driver: a, volumeHandle: b}, local: {path: /a}, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}, cephfs: {monitors: [a]}"), []string{"spec.csi: Forbidden: may not specify more than 1 volume type", "spec.local: Forbidden: may not specify more than 1 volume type"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewPersistentVolumesAreValidatedWithTheirMetadata(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a volume's capacity may be fractional", "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi, a/b: 1500m}, accessModes: [ReadWriteOnce], hostPath: {path: /a}}\n", []string{`spec.capacity: Unsupported value: {`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}

func TestUpdatesOfPersistentVolumesAreValidated(t *testing.T) {
	csi := func(rest string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: a, volumeHandle: b, " + rest + "}}\n"
	}
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a volume gets a node expansion secret", csi(""), csi("nodeExpandSecretRef: {name: a, namespace: b}"), []string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"}},
		{"a volume gets a controller expansion secret", csi(""), csi("controllerExpandSecretRef: {name: a, namespace: b}"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestUpdatesOfPersistentVolumesKeepFields(t *testing.T) {
	cases := []struct {
		name, before, after string
		want                []string
	}{
		{"a volume's source", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /a}}}", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /b}}}",
			[]string{"spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, "---\n"+c.before)
			obj, _ := resourcetest.Read(t, rules.For, "---\n"+c.after)
			resourcetest.Expect(t, s.ValidateUpdate(obj, old), c.want...)
		})
	}
}

func TestWarningsOfPersistentVolumes(t *testing.T) {
	volume := func(spec string) string {
		return "apiVersion: v1\nkind: PersistentVolume\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], " + spec + "}\n"
	}
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a deprecated volume source with a deprecated label and policy", volume("glusterfs: {endpoints: a, path: b}, persistentVolumeReclaimPolicy: Recycle, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: beta.kubernetes.io/os, operator: Exists}]}]}}"), []string{
			"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
			`spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`, "spec.glusterfs: deprecated in v1.25, non-functional in v1.26+"}},
		{"a volume source without a warning", volume("quobyte: {registry: 'a:1', volume: b}"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
