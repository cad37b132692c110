package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// pageSizes lists the sizes of huge pages that cgroups can limit, in the kernel's notation ("2MB").
// It is empty without the controller hugetlb.
func pageSizes() []string {
	if V2() {
		raw, err := os.ReadFile(filepath.Join(mountRoot, "cgroup.controllers"))
		if err != nil || !slices.Contains(strings.Fields(string(raw)), "hugetlb") {
			return nil
		}
	} else if _, err := os.Stat(filepath.Join(mountRoot, "hugetlb")); err != nil {
		return nil
	}
	return cgroups.HugePageSizes()
}

// hugePageLimits limits the pod's huge pages of each size. A size that the pod does not request is
// forbidden.
func hugePageLimits(limits corev1.ResourceList, sizes []string) []*cgroups.HugepageLimit {
	want := map[string]uint64{}
	for name, q := range limits {
		if size, ok := spec.HugePageSize(name); ok {
			want[size] = uint64(max(q.Value(), 0))
		}
	}
	var out []*cgroups.HugepageLimit
	for _, size := range sizes {
		out = append(out, &cgroups.HugepageLimit{Pagesize: size, Limit: want[size]})
	}
	return out
}
