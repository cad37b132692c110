package policy_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/policy"
)

// More quotas limit the broken kind than there are workers.
func TestAnUnlistableKindDoesNotDelayQuotasOfOtherKinds(t *testing.T) {
	c := controllertest.New(t)
	release := c.Withhold(corev1.SchemeGroupVersion.WithResource("secrets"))
	c.Run(policy.ResourceQuota)
	controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	controllertest.Create(c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
	quota := func(name string, bounds ...corev1.ResourceName) {
		hard := corev1.ResourceList{}
		for _, b := range bounds {
			hard[b] = resource.MustParse("9")
		}
		controllertest.Create(c, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}})
	}
	used := func(name string, secrets, configMaps int64) func() string {
		return func() string {
			q, err := client.Get[*corev1.ResourceQuota](t.Context(), c.Client, "default", name)
			if err != nil {
				return err.Error()
			}
			s, m := q.Status.Used[corev1.ResourceSecrets], q.Status.Used[corev1.ResourceConfigMaps]
			if s.Value() != secrets || m.Value() != configMaps {
				return fmt.Sprintf("%+v", q.Status)
			}
			return ""
		}
	}
	for i := range 4 {
		quota(fmt.Sprint("both-", i), corev1.ResourceSecrets, corev1.ResourceConfigMaps)
	}
	quota("other", corev1.ResourceConfigMaps)
	c.Eventually("quotas of other kinds are counted", used("other", 0, 1))
	c.Eventually("the listable kind is counted", used("both-3", 0, 1))
	release()
	for i := range 4 {
		c.Eventually("all kinds are counted", used(fmt.Sprint("both-", i), 1, 1))
	}
}

func TestAClaimCountsInTheQuotasOfItsAttributesClasses(t *testing.T) {
	c := controllertest.New(t)
	c.Run(policy.ResourceQuota)
	used := func(gold, silver string) func() string {
		return func() string {
			for class, want := range map[string]string{"gold": gold, "silver": silver} {
				q, err := client.Get[*corev1.ResourceQuota](t.Context(), c.Client, "default", class)
				if err != nil {
					return err.Error()
				}
				if have, ok := q.Status.Used[corev1.ResourceRequestsStorage]; !ok || have.Cmp(resource.MustParse(want)) != 0 {
					return fmt.Sprintf("%s: %+v, want %s", class, q.Status, want)
				}
			}
			return ""
		}
	}
	gold, silver := "gold", "silver"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeAttributesClassName: &gold,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	claim = controllertest.Create(c, claim)
	update := func(subresource bool, change func()) {
		t.Helper()
		var err error
		change()
		if subresource {
			claim, err = client.UpdateStatus(t.Context(), c.Client, claim)
		} else {
			claim, err = client.Update(t.Context(), c.Client, claim)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	update(true, func() {
		claim.Status.Phase, claim.Status.CurrentVolumeAttributesClassName = corev1.ClaimBound, &gold
	})
	for _, class := range []string{"gold", "silver"} {
		selector := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class}}
		controllertest.Create(c, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: corev1.ResourceQuotaSpec{
			Hard:          corev1.ResourceList{corev1.ResourceRequestsStorage: resource.MustParse("5Gi")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{selector}},
		}})
	}
	c.Eventually("the claim counts for gold", used("1Gi", "0"))
	update(false, func() { claim.Spec.VolumeAttributesClassName = &silver })
	c.Eventually("during the change it counts for both", used("1Gi", "1Gi"))
	update(true, func() { claim.Status.CurrentVolumeAttributesClassName = &silver })
	c.Eventually("after the change it counts for silver", used("0", "1Gi"))
}
