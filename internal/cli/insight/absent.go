package insight

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

const (
	// maxCandidates bounds the objects among which a similar name is looked for.
	maxCandidates = 500
	// maxNamed bounds the names in an error.
	maxNamed = 8
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// target is the object, or with an empty name the namespace, that a command asks about.
type target struct {
	schema.GroupVersionResource
	kind            string // for people, such as deployment
	namespace, name string
	// everywhere means the objects of the name in all namespaces.
	everywhere bool
}

func (t *target) String() string {
	switch {
	case t.name == "":
		return fmt.Sprintf("namespace %s", t.namespace)
	case t.namespace == "":
		return t.kind + "/" + t.name
	}
	return t.kind + "/" + t.name + " in namespace " + t.namespace
}

// absent is an error about an object or a namespace that does not exist.
type absent struct {
	what string
	hint string // begins with "; " unless it is ""
}

func (a *absent) Error() string { return a.what + " does not exist" + a.hint }

// in returns the words to add to an error that names the target already.
func (a *absent) in(t *target) string {
	if t.String() != a.what {
		return "; the " + a.Error()
	}
	return a.hint
}

// missing returns what a target lacks: its namespace, or the object itself. It returns nil if the
// object exists, and if the caller may not know.
func missing(ctx context.Context, c *rest.Config, t target) *absent {
	reader, err := metadata.NewForConfig(c)
	if err != nil {
		return nil
	}
	gone := func(r schema.GroupVersionResource, namespace, name string) bool {
		_, err := reader.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	r, namespace, name, there := t.GroupVersionResource, t.namespace, t.name, t.Resource
	switch {
	case t.everywhere:
		named := metav1.ListOptions{FieldSelector: "metadata.name=" + t.name, Limit: 1}
		if list, err := reader.Resource(r).List(ctx, named); err != nil || len(list.Items) > 0 {
			return nil
		}
	case t.name != "" && !gone(r, namespace, name):
		return nil
	case t.namespace != "" && gone(namespaces, "", t.namespace):
		t = target{namespace: t.namespace}
		r, namespace, name, there = namespaces, "", t.namespace, "namespaces"
	case t.name == "":
		return nil
	case t.namespace != "":
		there += " there"
	}
	a := &absent{what: t.String()}
	if list, err := reader.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: maxCandidates}); err == nil {
		var known []string
		for i := range list.Items {
			known = append(known, list.Items[i].Name)
		}
		a.hint = hint(name, there, known)
	}
	return a
}

// hint names the known names that are like a mistyped one, or else some of all. there is what they
// are names of.
func hint(name, there string, known []string) string {
	slices.Sort(known)
	known = slices.Compact(known)
	if near := config.Nearest(name, known); len(near) > 0 {
		return "; did you mean " + strings.Join(near, " or ") + "?"
	}
	switch n := len(known); {
	case n == 0:
		return "; there are no " + there
	case n > maxNamed:
		return fmt.Sprintf("; %s: %s and %d more", there, strings.Join(known[:maxNamed], ", "), n-maxNamed)
	}
	return "; " + there + ": " + strings.Join(known, ", ")
}

// unrecorded returns an error if neither the cluster nor the history of objects has the target. ask
// asks about the target at all times.
func unrecorded(ctx context.Context, c *rest.Config, ask asker, t target) error {
	gone := missing(ctx, c, t)
	if gone == nil {
		return nil
	}
	var answer timeline.Answer
	if err := ask(ctx, "timeline", url.Values{"limit": {"1"}}, &answer); err != nil {
		return err
	}
	if len(answer.Items) > 0 || answer.Hidden > 0 || answer.Continue != "" {
		return nil
	}
	return fmt.Errorf("neither the cluster nor its history of objects has %s%s", t.String(), gone.in(&t))
}
