package strategy_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func TestManyFinalizersAreNotComparedEachWithEach(t *testing.T) {
	names := resourcetest.Numbered(resourcetest.Text)
	if got := strategy.FinalizerWarnings(&metav1.ObjectMeta{Finalizers: append(names, "new")}, &metav1.ObjectMeta{Finalizers: names}); len(got) != 1 {
		t.Errorf("%d warnings of finalizers, want 1", len(got))
	}
}

func TestFinalizersNeedADomainInMostKinds(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a finalizer without domain on a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {finalizers: [x]}\n", []string{"metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"}},
		{"the garbage collector's finalizers on a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {finalizers: [orphan, kubernetes]}\n", nil},
		{"a finalizer without domain on a Lease", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {finalizers: [x]}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, true), c.want...)
		})
	}
}

func TestFinalizersWithoutADomainAreWarnedOf(t *testing.T) {
	obj := &metav1.ObjectMeta{Finalizers: []string{"x", "a.example", "a.example/b", "orphan", "old"}}
	want := []string{
		`metadata.finalizers: "a.example": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "x": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
	}
	if got := strategy.FinalizerWarnings(obj, &metav1.ObjectMeta{Finalizers: []string{"old"}}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestSomeKindsValidateMetadataLast(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a budget with a name in capitals", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: TCP}\nspec: {minAvailable: 1}\n", nil},
		{"a budget with an invalid name and spec", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a/b}\nspec: {minAvailable: 101%}\n", []string{"spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"}},
		{"a budget with an invalid name", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a/b}\nspec: {minAvailable: 1}\n", []string{"metadata.name: Invalid value: \"a/b\": may not contain '/'"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.Expect(t, s.ValidateNew(obj, true), c.want...)
		})
	}
}

func TestSomeKindsCheckGenerateNameOnUpdate(t *testing.T) {
	for manifest, again := range map[string]bool{"apiVersion: v1\nkind: ConfigMap\n": true, "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n": false} {
		old, s := resourcetest.Read(t, rules.For, manifest)
		obj, _ := resourcetest.Read(t, rules.For, manifest)
		obj.(metav1.Object).SetGenerateName("UPPER")
		obj.(metav1.Object).SetResourceVersion("1")
		if errs := s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), true, ""); (len(errs) > 0) != again {
			t.Errorf("%s: %v", manifest, errs)
		}
	}
}

func TestVolumeAttachmentsCheckGenerateNameOnStatusUpdate(t *testing.T) {
	for manifest, again := range map[string]bool{"apiVersion: v1\nkind: PersistentVolume\n": false, "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\n": true} {
		old, s := resourcetest.Read(t, rules.For, manifest)
		obj, _ := resourcetest.Read(t, rules.For, manifest)
		obj.(metav1.Object).SetGenerateName("UPPER")
		obj.(metav1.Object).SetResourceVersion("1")
		if errs := s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), false, "status"); (len(errs) > 0) != again {
			t.Errorf("%s: %v", manifest, errs)
		}
	}
}

func TestUpdatesReportAllMetadataErrors(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, resourceVersion: '1', deletionTimestamp: '2024-01-01T00:00:00Z', finalizers: [a.example/held]}\n"
	newOnes := `metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x"}`
	for _, c := range []struct {
		name   string
		change func(m metav1.Object)
		want   []string
	}{
		{"a new invalid finalizer", func(m metav1.Object) { m.SetFinalizers([]string{"x"}) }, []string{newOnes, newOnes, "metadata.finalizers[0]: Invalid value"}},
		{"another uid and an invalid generateName", func(m metav1.Object) { m.SetUID("x"); m.SetGenerateName("a/") },
			[]string{"metadata.generateName: Invalid value: \"a/\": may not contain '/'", "metadata.uid: Invalid value", "metadata.uid: Invalid value", "metadata.generateName: Invalid value: \"a/\": a lowercase"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, manifest)
			obj, _ := resourcetest.Read(t, rules.For, manifest)
			c.change(obj.(metav1.Object))
			resourcetest.Expect(t, s.ValidateMetaUpdate(obj.(metav1.Object), old.(metav1.Object), true, ""), c.want...)
		})
	}
}

func TestStatusUpdatesOfSomeKindsKeepMetadata(t *testing.T) {
	for _, manifest := range []string{
		"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\n",
		"apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\n", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\n",
	} {
		old, s := resourcetest.Read(t, rules.For, manifest)
		obj, _ := resourcetest.Read(t, rules.For, manifest)
		obj.(metav1.Object).SetLabels(map[string]string{"a": "b"})
		obj.(metav1.Object).SetFinalizers([]string{"a.example/b"})
		s.PrepareStatus(obj, old)
		if m := obj.(metav1.Object); len(m.GetLabels())+len(m.GetFinalizers()) > 0 {
			t.Errorf("%s: labels %v, finalizers %v", manifest, m.GetLabels(), m.GetFinalizers())
		}
		obj.(metav1.Object).SetGenerateName("a-")
		s.PrepareStatus(obj, old)
		if taken := obj.(metav1.Object).GetGenerateName() != ""; taken == strings.Contains(manifest, "flowcontrol") {
			t.Errorf("%s: the name that its own would be generated from is taken: %v", manifest, taken)
		}
	}
}

func TestErrorsOfLongNamesDifferByKind(t *testing.T) {
	for kind, want := range map[string]string{
		"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n":   "must be no more than 253 bytes",
		"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass": "must be no more than 253 characters",
	} {
		obj, s := resourcetest.Read(t, rules.For, kind)
		obj.(metav1.Object).SetName(strings.Repeat("a", 254))
		resourcetest.Expect(t, s.ValidateNew(obj, false), want)
	}
}
