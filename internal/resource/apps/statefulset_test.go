package apps_test

import (
	"testing"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestErrorsOfNewStatefulSetsComeInOrder(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a stateful set", workload("StatefulSet", ", serviceName: s"), nil},
		{"a stateful set with an unknown policy", workload("StatefulSet", ", podManagementPolicy: Odd, updateStrategy: {type: OnDelete, rollingUpdate: {partition: -1}}"),
			[]string{"spec.podManagementPolicy: Invalid value: \"Odd\": must be 'OrderedReady' or 'Parallel'",
				`spec.updateStrategy.rollingUpdate: Invalid value: {"partition":-1}: only allowed for updateStrategy 'RollingUpdate'`}},
		{"a stateful set with a negative start ordinal", workload("StatefulSet", ", ordinals: {start: -1}, persistentVolumeClaimRetentionPolicy: {whenScaled: Burn}"),
			[]string{`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Burn": supported values: "Retain", "Delete"`,
				"spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestErrorsOfUpdatesOfStatefulSetsComeInOrder(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a stateful set scales", workload("StatefulSet", ""), workload("StatefulSet", ", replicas: 3, minReadySeconds: 2"), nil},
		{"a stateful set's serviceName is immutable", workload("StatefulSet", ", serviceName: s"), workload("StatefulSet", ", serviceName: t"),
			[]string{"spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.ExpectInOrder(t, resourcetest.Update(s, obj, old), c.want)
		})
	}
}

func TestNewStatefulSetsAreValidated(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a set that keeps all its revisions", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {revisionHistoryLimit: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n", nil},
		{"two claim templates of one name add one volume", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}, {metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}\n", nil},
		{"a claim template replaces a volume of its name", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}], volumes: [{name: d, emptyDir: {}}, {name: e, emptyDir: {}}, {name: e, emptyDir: {}}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}\n", []string{`spec.template.spec.volumes[2].name: Duplicate value: "e"`}},
		{"a StatefulSet without containers", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}\n", []string{"spec.template.spec.containers: Required value"}},
		{"a StatefulSet mounts volumes of its claim templates", workload("StatefulSet", ", volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"), nil},
		{"a hostname in the template of a StatefulSet", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostname: a.b, containers: [{name: c, image: i}]}}}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateCreate(obj), c.want...)
		})
	}
}

func TestWarningsOfStatefulSets(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a set that keeps all its revisions", "apiVersion: apps/v1\nkind: StatefulSet\nspec: {revisionHistoryLimit: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1500m}}}}]}\n", []string{
			`spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer`, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectWarnings(t, s.Warnings(obj, nil), c.want)
		})
	}
}
