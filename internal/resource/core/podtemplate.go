package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func PodTemplateStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(func(t *corev1.PodTemplate) { pods.DefaultTemplate(&t.Template) })
	template := func(t *corev1.PodTemplate) field.ErrorList {
		return pods.ValidateTemplate(&t.Template, field.NewPath("template"))
	}
	s.ValidateCreate = strategy.Checks(template)
	s.ValidateUpdate = strategy.ChecksBoth(func(t, _ *corev1.PodTemplate) field.ErrorList { return template(t) })
	s.PrepareCreate = strategy.On(func(t *corev1.PodTemplate) { t.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(t, old *corev1.PodTemplate) { strategy.SetGeneration(t, old, !strategy.Same(t, old, "Template")) })
	return strategy.Show(pods.WithTemplateRules(s), podTemplateColumns, podTemplateRow)
}

var podTemplateColumns = columns.Define("Name", "Containers=Names of each container in the template.", "Images=Images referenced by each container in the template.", "Pod Labels=The labels for the pod template.")

func podTemplateRow(t *corev1.PodTemplate, _ metav1.Time) []any {
	return []any{t.Name, pods.ContainerNames(&t.Template.Spec), pods.ContainerImages(&t.Template.Spec), labels.FormatLabels(t.Template.Labels)}
}
