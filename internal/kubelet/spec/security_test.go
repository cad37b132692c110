package spec

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestRunAsNonRootIsVerified tries every combination of the pod's setting, the container's setting
// and the image's user.
func TestRunAsNonRootIsVerified(t *testing.T) {
	const (
		broken  = "container's runAsUser breaks non-root policy"
		root    = "container has runAsNonRoot and image will run as root"
		unknown = "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root"
	)
	images := []struct {
		name string
		user ImageUser
		want string // the error if the image's user decides
	}{
		{"an image without a user", ImageUser{}, root},
		{"an image of uid 0", ImageUser{UID: ptr.To[int64](0)}, root},
		{"an image of uid 0 that also has a name", ImageUser{UID: ptr.To[int64](0), Name: "www"}, root},
		{"an image of uid 1000", ImageUser{UID: ptr.To[int64](1000)}, ""},
		{"an image of uid 1000 that also has a name", ImageUser{UID: ptr.To[int64](1000), Name: "www"}, ""},
		{"an image of a named user", ImageUser{Name: "www"}, unknown},
	}
	bools := []*bool{nil, ptr.To(false), ptr.To(true)}
	users := []*int64{nil, ptr.To[int64](0), ptr.To[int64](1000)}
	checked := 0
	for _, image := range images {
		for _, podNonRoot := range bools {
			for _, nonRoot := range bools {
				for _, podUser := range users {
					for _, user := range users {
						want := ""
						must, runs := podNonRoot, podUser
						if nonRoot != nil {
							must = nonRoot
						}
						if user != nil {
							runs = user
						}
						switch {
						case must == nil || !*must:
						case runs == nil:
							want = image.want
						case *runs == 0:
							want = broken
						}
						pod := &corev1.Pod{}
						pod.Name, pod.Namespace = "web", "default"
						pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: podNonRoot, RunAsUser: podUser}
						c := &corev1.Container{Name: "main", SecurityContext: &corev1.SecurityContext{RunAsNonRoot: nonRoot, RunAsUser: user}}
						_, err := securityContext(pod, c, image.user, &ContainerOptions{})
						checked++
						if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want+" (pod: ")) {
							t.Errorf("%s, pod runAsNonRoot %s runAsUser %s, container runAsNonRoot %s runAsUser %s: %v, want %q",
								image.name, show(podNonRoot), show(podUser), show(nonRoot), show(user), err, want)
						}
					}
				}
			}
		}
	}
	if checked != 6*3*3*3*3 {
		t.Errorf("%d combinations", checked)
	}
}

func show[T any](p *T) string {
	if p == nil {
		return "unset"
	}
	return fmt.Sprint(*p)
}
