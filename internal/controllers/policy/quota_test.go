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
