package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// ComponentStatusStrategy has columns only: a ComponentStatus is not stored.
func ComponentStatusStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, componentStatusColumns, componentStatusRow)
}

var componentStatusColumns = columns.Define("Name", "Status=Status of the component conditions", "Message=Message of the component conditions", "Error=Error of the component conditions")

func componentStatusRow(s *corev1.ComponentStatus, _ metav1.Time) []any {
	status, message, failure := "Unknown", "", ""
	for _, c := range s.Conditions {
		if c.Type != corev1.ComponentHealthy {
			continue
		}
		status, message, failure = "Unhealthy", c.Message, c.Error
		if c.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
	}
	return []any{s.Name, status, message, failure}
}
