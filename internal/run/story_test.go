package run

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/trace"
)

// story asks the server for the story of a Deployment.
func (s *testServer) story(t *testing.T, name string) (*trace.Tree, error) {
	t.Helper()
	c, err := rest.HTTPClientFor(s.rest(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	question := trace.Question{Object: causes.Object{Group: "apps", Resource: "deployments", Namespace: "default", Name: name}}
	tree := &trace.Tree{}
	server := ask.Server{HTTP: c, URL: "https://" + s.cfg.Listen}
	return tree, server.Ask(t.Context(), "story", question.Query(), tree)
}

// resources returns the resources of a story in the order of the tree.
func resources(tree *trace.Tree) (out []string) {
	var walk func([]*trace.Hop)
	walk = func(hops []*trace.Hop) {
		for _, h := range hops {
			if !slices.Contains(out, h.Resource) {
				out = append(out, h.Resource)
			}
			walk(h.Hops)
		}
	}
	walk(tree.Hops)
	return out
}

// The Deployment is written at b, and its controllers write at a. Each server tells the whole
// story.
func TestAStoryOfThreeServersIsToldByEach(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	b := startServer(t, a.joining(t, "b"))
	c := startServer(t, b.joining(t, "c"))
	labels := map[string]string{"app": "web"}
	_, err := client.Create(t.Context(), b.client(t), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"deployments", "replicasets", "pods"}
	for _, s := range []*testServer{a, b, c} {
		eventually(t, "the story at "+s.cfg.NodeName, func() error {
			tree, err := s.story(t, "web")
			if err != nil {
				return err
			}
			if got := resources(tree); !slices.Equal(got, want) || len(tree.Hops) != 1 || len(tree.Missing) > 0 {
				return fmt.Errorf("%v, missing %v", got, tree.Missing)
			}
			return nil
		})
	}
	if err := b.ask(t, http.MethodGet, "/insight/v1/changes?group=apps&resource=replicasets&namespace=default&name=x", nil, &causes.Answer{}); err != nil {
		t.Error(err)
	}

	// Without b the story has lost its beginning, and c says so.
	b.end(t)
	eventually(t, "b is missing", func() error {
		tree, err := c.story(t, "web")
		if err != nil {
			return err
		}
		for server := range tree.Missing {
			if strings.HasPrefix(server, "b (https://") {
				return nil
			}
		}
		return errors.New(fmt.Sprint("missing: ", tree.Missing))
	})
}
