package cgroup

import (
	"os"
	"path/filepath"
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

func TestTheControllerOfHugePagesIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		v2   bool
		file string // below the mount; a path with a final slash is a folder
		want bool
	}{
		"version 1":                       {false, "hugetlb/cgroup.procs", true},
		"version 1, an empty folder":      {false, "hugetlb/", false},
		"version 1, without":              {false, "memory/cgroup.procs", false},
		"version 2":                       {true, "cgroup.controllers", true},
		"version 2, without a controller": {true, "hugetlb/", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			var err error
			if c.file[len(c.file)-1] == '/' {
				err = os.MkdirAll(path, 0o755)
			} else {
				err = os.WriteFile(path, []byte("cpu hugetlb\n"), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := haveHugetlb(root, c.v2); got != c.want {
				t.Errorf("found: %t, want %t", got, c.want)
			}
		})
	}
}
