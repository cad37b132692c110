package pods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// Comparing every pair of ports took gigabytes and seconds.
func TestWarningsOfManyPortsAreBounded(t *testing.T) {
	const many = 60000
	cases := []struct {
		name string
		port func(i int) corev1.ContainerPort
		want string // the first warning
	}{
		{"equal ports", func(int) corev1.ContainerPort { return corev1.ContainerPort{ContainerPort: 80} }, "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"},
		{"different host ports", func(i int) corev1.ContainerPort {
			return corev1.ContainerPort{ContainerPort: 80, HostPort: int32(i + 1)}
		}, ""},
		{"different host addresses", func(i int) corev1.ContainerPort {
			return corev1.ContainerPort{ContainerPort: 80, HostPort: 81, HostIP: fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}
		}, ""},
		{"the last one on all host addresses", func(i int) corev1.ContainerPort {
			if i == many-1 {
				return corev1.ContainerPort{ContainerPort: 80, HostPort: 81}
			}
			return corev1.ContainerPort{ContainerPort: 80, HostPort: 81, HostIP: fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}
		}, "spec.containers[0].ports[59999]: dangerously ambiguous port definition with spec.containers[0].ports[0]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
			for i := range many {
				spec.Containers[0].Ports = append(spec.Containers[0].Ports, c.port(i))
			}
			got := warnPorts(spec, validate.SpecPath)
			switch all := strings.Join(got, ""); {
			case c.want == "" && len(got) > 0, c.want != "" && (len(got) == 0 || got[0] != c.want):
				t.Errorf("%d warnings, first %q, want %q", len(got), got[:min(1, len(got))], c.want)
			case c.want != "" && (len(all) <= warnedRunes || len(all) > warnedRunes+warnedRunesOne):
				t.Errorf("warnings of %d characters, want just more than %d", len(all), warnedRunes)
			}
		})
	}
}

func TestOverlappingFilesOfVolumesAreWarnedOf(t *testing.T) {
	cases := []struct {
		name, volume string
		want         []string
	}{
		{"a file below a file", "secret: {secretName: s, items: [{key: k, path: p}, {key: l, path: p/q}]}", []string{`(Secret "s"): overlapping paths: "p/q" with "p"`}},
		{"a repeated file", "configMap: {name: c, items: [{key: k, path: p}, {key: l, path: p/}]}", []string{`(ConfigMap "c"): overlapping paths: "p" with "p"`}},
		{"a repeated field", "downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}, {path: p, fieldRef: {fieldPath: metadata.name}}]}", []string{`(DownwardAPI): overlapping paths: "p" with "p"`}},
		{"files side by side", "secret: {secretName: s, items: [{key: k, path: p}, {key: l, path: pq}, {key: m, path: p-q/r}, {key: o, path: ./p}]}", nil},
		{"nested folders", "projected: {sources: [{secret: {name: s, items: [{key: k, path: p/q/r}]}}, {configMap: {name: c, items: [{key: k, path: p/q}]}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}", []string{
			`(Projected): overlapping paths: "p/q" (ConfigMap "c") with "p/q/r" (Secret "s")`, `(Projected): overlapping paths: "p" (DownwardAPI) with "p/q/r" (Secret "s")`, `(Projected): overlapping paths: "p" (DownwardAPI) with "p/q" (ConfigMap "c")`}},
		{"a token at the path of a secret", "projected: {sources: [{secret: {name: s, items: [{key: k, path: p}]}}, {serviceAccountToken: {path: p}}]}", []string{`(Projected): overlapping paths: "p" (ServiceAccountToken) with "p" (Secret "s")`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, _ := resourcetest.Read(t, onlyPods, "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, image: i}], volumes: [{name: v, "+c.volume+"}]}\n")
			var want []string
			for _, w := range c.want {
				want = append(want, `volume "v" `+w)
			}
			if got := warnPaths(&obj.(*corev1.Pod).Spec.Volumes[0]); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// All of them overlap. Comparing every pair would take an hour.
func TestWarningsOfManyOverlappingFilesAreBounded(t *testing.T) {
	s := &corev1.SecretVolumeSource{SecretName: "s"}
	for i := range 200_000 {
		s.Items = append(s.Items, corev1.KeyToPath{Path: "p"}, corev1.KeyToPath{Path: fmt.Sprint("p/", i)})
	}
	v := &corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: s}}
	if got := warnPaths(v); len(got) == 0 || len(got) > warnedRunes {
		t.Errorf("%d warnings", len(got))
	}
}
