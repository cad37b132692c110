package relations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/internal/architecture"
)

const (
	// maxLooked bounds the objects beyond the lists that are looked for.
	maxLooked = 20
	// maxGoneNamed bounds the names in the text of a Graph.
	maxGoneNamed = 5
)

// dropGone leaves out connections with an end that no longer exists. Their record stays for a day,
// and a map shows what there is. listed tells the kinds whose lists are complete in the namespace,
// or in all if it is "". An object beyond the lists is looked for; it stays if that fails.
func (o *Objects) dropGone(ctx context.Context, c kubernetes.Interface, namespace string, listed map[string]bool) {
	exists := map[Object]bool{}
	note(exists, "Deployment", o.Deployments)
	note(exists, "StatefulSet", o.StatefulSets)
	note(exists, "DaemonSet", o.DaemonSets)
	note(exists, "CronJob", o.CronJobs)
	note(exists, "Job", o.Jobs)
	note(exists, "Pod", o.Pods)
	looked := 0
	gone := func(e architecture.End) bool {
		object := Object{e.Kind, e.Namespace, e.Name}
		if e.Outside || e.Namespace == "" || e.Name == "" {
			return false
		}
		there, known := exists[object]
		switch {
		case known:
		case listed[e.Kind] && (namespace == "" || e.Namespace == namespace):
		case looked == maxLooked:
			there = true
		default:
			looked++
			there = !apierrors.IsNotFound(find(ctx, c, object))
		}
		exists[object] = there
		if !there && !slices.Contains(o.Gone, object) {
			o.Gone = append(o.Gone, object)
		}
		return !there
	}
	o.Flows = slices.DeleteFunc(o.Flows, func(f architecture.Flow) bool {
		from, to := gone(f.From), gone(f.To.End)
		return from || to
	})
	slices.SortFunc(o.Gone, compareObject)
}

// note records the objects of a list.
func note[T any, P interface {
	*T
	metav1.Object
}](exists map[Object]bool, kind string, list []T) {
	for i := range list {
		o := P(&list[i])
		exists[Object{kind, o.GetNamespace(), o.GetName()}] = true
	}
}

// find gets an object of the kinds that ends of connections have. Others are as if they existed.
func find(ctx context.Context, c kubernetes.Interface, o Object) (err error) {
	var opts metav1.GetOptions
	switch o.Kind {
	case "Deployment":
		_, err = c.AppsV1().Deployments(o.Namespace).Get(ctx, o.Name, opts)
	case "StatefulSet":
		_, err = c.AppsV1().StatefulSets(o.Namespace).Get(ctx, o.Name, opts)
	case "DaemonSet":
		_, err = c.AppsV1().DaemonSets(o.Namespace).Get(ctx, o.Name, opts)
	case "ReplicaSet":
		_, err = c.AppsV1().ReplicaSets(o.Namespace).Get(ctx, o.Name, opts)
	case "CronJob":
		_, err = c.BatchV1().CronJobs(o.Namespace).Get(ctx, o.Name, opts)
	case "Job":
		_, err = c.BatchV1().Jobs(o.Namespace).Get(ctx, o.Name, opts)
	case "Pod":
		_, err = c.CoreV1().Pods(o.Namespace).Get(ctx, o.Name, opts)
	}
	return err
}

// goneText names the objects whose connections are not shown, or is "".
func (g *Graph) goneText() string {
	var names []string
	for _, o := range g.Gone[:min(len(g.Gone), maxGoneNamed)] {
		names = append(names, fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name))
	}
	if n := len(g.Gone) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	if len(names) == 0 {
		return ""
	}
	return "connections of removed objects are not shown: " + strings.Join(names, ", ")
}
