package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
)

// The file is in a folder that a link names, as in the volume of a ConfigMap. The link is replaced.
func TestARunningServerTakesAChangedSchedulerConfiguration(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(version, text string) {
		t.Helper()
		must(os.Mkdir(filepath.Join(dir, version), 0o700))
		head := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
		must(os.WriteFile(filepath.Join(dir, version, "scheduler.yaml"), []byte(head+text), 0o600))
		must(os.Symlink(version, filepath.Join(dir, "new")))
		must(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")))
	}
	put("1", "profiles: [{schedulerName: first}]")
	s := newSea(t)
	s.configure = func(c *config.Config) { c.SchedulerConfig = filepath.Join(dir, "data", "scheduler.yaml") }
	oak := s.launch(t, "oak")
	leader(t, oak)
	oak.makeNode(t, "n")
	make := func(name, profile string) {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
		p.Spec = corev1.PodSpec{SchedulerName: profile, Containers: []corev1.Container{{Name: "a", Image: "x"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
		_, err := client.Create(t.Context(), oak.admin, p)
		must(err)
	}
	event := func(reason, text string) {
		t.Helper()
		view, err := client.Open[*corev1.Event](t.Context(), oak.admin, client.Scope{})
		must(err)
		comes(t, "the event "+reason, func() bool {
			return slices.ContainsFunc(view.List("kube-system", nil), func(e *corev1.Event) bool {
				return e.InvolvedObject.Kind == "Lease" && e.InvolvedObject.Name == "kube-scheduler" && e.Reason == reason && strings.Contains(e.Message, text)
			})
		})
	}
	make("a", "first")
	make("b", "second")
	oak.sails(t, "a", 1)
	put("2", "profiles: [{schedulerName: first}, {schedulerName: second}]\nparallelism: 16")
	oak.sails(t, "b", 1)
	event("ConfigurationChanged", "in use")
	event("ConfigurationWithoutEffect", "parallelism: 16")
	put("3", "profiles: [{schedulerName: third}]\npodInitialBackoffSeconds: -1")
	event("ConfigurationRefused", "podInitialBackoffSeconds: Invalid value: -1: must be greater than 0")
	make("c", "second")
	oak.sails(t, "c", 1)
}
