package measure

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPodsWithUserNamespacesAreCounted(t *testing.T) {
	t.Parallel()
	m := New("node")
	m.PodMade(false, nil)
	m.PodMade(true, nil)
	m.PodMade(true, errors.New("no sandbox"))
	m.ContainerStarted(false, "container", "CreateContainerError")
	m.ContainerStarted(true, "container", "RunContainerError")
	m.ContainerStarted(true, "container", "")
	page := httptest.NewRecorder()
	m.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		"kubelet_started_pods_total 3",
		"kubelet_started_pods_errors_total 1",
		"kubelet_started_user_namespaced_pods_total 2",
		"kubelet_started_user_namespaced_pods_errors_total 2",
	} {
		if !strings.Contains(page.Body.String(), "\n"+want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
}
