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
	if !haveHugetlb(mountRoot, V2()) {
		return nil
	}
	return cgroups.HugePageSizes()
}

// haveHugetlb reports whether the cgroups at root have the controller. On a machine without it,
// systemd leaves an empty folder where version 1 has the hierarchy.
func haveHugetlb(root string, v2 bool) bool {
	if v2 {
		raw, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
		return err == nil && slices.Contains(strings.Fields(string(raw)), "hugetlb")
	}
	_, err := os.Stat(filepath.Join(root, "hugetlb", "cgroup.procs"))
	return err == nil
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
