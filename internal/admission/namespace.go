package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// namespaceLifecycle refuses writes to missing namespaces, creates in terminating ones, and the
// deletion of the cluster's own namespaces.
type namespaceLifecycle struct {
	base
	namespaces *client.Lazy[*corev1.Namespace]
}

func newNamespaceLifecycle(namespaces *client.Lazy[*corev1.Namespace]) Plugin {
	return namespaceLifecycle{base{"NamespaceLifecycle", []Operation{Create, Update, Delete}}, namespaces}
}

// immortal namespaces cannot be deleted.
var immortal = map[string]bool{metav1.NamespaceDefault: true, metav1.NamespaceSystem: true, metav1.NamespacePublic: true}

// Admit implements Mutator. It runs as a mutator so that it decides before other plugins look
// things up in the namespace.
func (p namespaceLifecycle) Admit(ctx context.Context, a *Attributes) error {
	if a.is("", "namespaces", "") && a.Operation == Delete && immortal[a.Name] {
		return apierrors.NewForbidden(a.groupResource(), a.Name, errors.New("this namespace may not be deleted"))
	}
	// Deletes must stay possible while a namespace terminates. Access reviews may name missing
	// namespaces.
	if a.Namespace == "" || a.Operation == Delete || a.Resource.Group == "authorization.k8s.io" || a.is("", "namespaces", a.Subresource) {
		return nil
	}
	namespace, err := p.namespaces.Find(ctx, "", a.Namespace)
	if err != nil {
		return err
	}
	if a.Operation != Create {
		return nil
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		a.NamespaceVersion = namespace.ResourceVersion
		return nil
	}
	return a.NamespaceTerminates()
}

// NamespaceTerminates refuses a new object in a namespace that is being deleted.
func (a *Attributes) NamespaceTerminates() error {
	forbidden := a.Forbidden(fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
	forbidden.ErrStatus.Details.Causes = append(forbidden.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace",
	})
	return forbidden
}
