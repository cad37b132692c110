package cgroup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestAPodMayUseOnlyTheHugePagesThatItRequests(t *testing.T) {
	limits := corev1.ResourceList{"hugepages-2Mi": resource.MustParse("8Mi"), "hugepages-64Ki": resource.MustParse("64Ki"), "memory": resource.MustParse("1Gi")}
	got := hugePageLimits(limits, []string{"2MB", "1GB"})
	if len(got) != 2 || got[0].Pagesize != "2MB" || got[0].Limit != 8<<20 || got[1].Pagesize != "1GB" || got[1].Limit != 0 {
		t.Errorf("limits: %+v", got)
	}
}
