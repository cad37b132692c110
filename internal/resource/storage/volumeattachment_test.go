package storage_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfAttachmentsAreBounded(t *testing.T) {
	for size, want := range map[int][]string{1024: nil, 1025: {"status.attachError.message: Too long: may not be more than 262144 bytes", "status.detachError.message: Too long: may not be more than 262144 bytes"}} {
		manifest := "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a.example, nodeName: node, source: {persistentVolumeName: a}}\n"
		old, s := resourcetest.Read(t, rules.For, manifest)
		message := strings.Repeat("x", size)
		obj, _ := resourcetest.Read(t, rules.For, manifest+"status: {attached: false, attachError: {message: "+message+"}, detachError: {message: "+message+"}}\n")
		resourcetest.Expect(t, s.ValidateStatus(obj, old), want...)
	}
}

func TestErrorsOfNewVolumeAttachmentsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an attachment without a source", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: d, nodeName: node}\n",
			[]string{"spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestNewVolumeAttachmentsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"two volumes, one invalid", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node, source: {persistentVolumeName: a..b, inlineVolumeSpec: {}}}\n",
			[]string{"spec.source: Forbidden: must specify exactly one", `spec.source.persistentVolumeName: Invalid value: "a..b"`}},
		{"an invalid volume", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node, source: {persistentVolumeName: a..b}}\n", []string{`spec.source.persistentVolumeName: Invalid value: "a..b": a lowercase RFC 1123 subdomain`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestNewVolumeAttachmentsAreValidatedWithTheirMetadata(t *testing.T) {
	attachment := func(volume string) string {
		return "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: a, nodeName: node-1, source: {inlineVolumeSpec: {" + volume + "}}}\n"
	}
	const inline = "accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: h}"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"an inline volume", attachment(inline + ", persistentVolumeReclaimPolicy: Retain, volumeMode: Filesystem, mountOptions: [a], volumeAttributesClassName: x"), nil},
		{"an inline volume without a source", attachment("mountOptions: [a]"), []string{"spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes", "spec.source.inlineVolumeSpec.accessModes: Required value", "spec.source.inlineVolumeSpec: Required value: must specify a volume type"}},
		{"an inline volume with fields of claims", attachment(inline + ", capacity: {storage: 1Gi}, claimRef: {name: a}, storageClassName: x, nodeAffinity: {}"), []string{
			"spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes", "claimRef: Forbidden", "storageClassName: Forbidden", "nodeAffinity: Forbidden"}},
		{"an inline volume in block mode", attachment(inline + ", volumeMode: Block, persistentVolumeReclaimPolicy: Delete"), []string{
			"volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes", "persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes"}},
		{"an inline volume without a driver", attachment("accessModes: [ReadWriteOnce], nfs: {server: a, path: /b}"), []string{"inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, obj.(metav1.Object).GetNamespace() != ""), c.want...)
		})
	}
}
