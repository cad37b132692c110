package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func ServiceAccountStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	// Of references to secrets, only the names are kept.
	clean := func(a *corev1.ServiceAccount) {
		for i, ref := range a.Secrets {
			if bare := (corev1.ObjectReference{Name: ref.Name}); ref != bare {
				a.Secrets[i] = bare
			}
		}
	}
	s.PrepareCreate = strategy.On(clean)
	s.PrepareUpdate = strategy.OnBoth(func(a, _ *corev1.ServiceAccount) { clean(a) })
	s.ValidateName = apivalidation.ValidateServiceAccountName
	s.Warnings = serviceAccountWarnings
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), serviceAccountColumns, serviceAccountRow)
}

// serviceAccountWarnings warns of a deprecated annotation when it is added.
func serviceAccountWarnings(obj, old runtime.Object) []string {
	const enforce = "kubernetes.io/enforce-mountable-secrets"
	if old != nil {
		if _, before := old.(*corev1.ServiceAccount).Annotations[enforce]; before {
			return nil
		}
	}
	if _, ok := obj.(*corev1.ServiceAccount).Annotations[enforce]; !ok {
		return nil
	}
	return []string{validate.AnnotationPath(enforce) + ": deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

var serviceAccountColumns = columns.Define("Name", "Age")

func serviceAccountRow(a *corev1.ServiceAccount, now metav1.Time) []any {
	return []any{a.Name, columns.AgeOf(a, now)}
}
