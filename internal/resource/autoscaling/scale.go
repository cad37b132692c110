package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func ScaleStrategy() *strategy.Strategy {
	return strategy.Show(&strategy.Strategy{}, scaleColumns, scaleRow)
}

// As upstream, the name column of a Scale does not have the format of a name.
var scaleColumns = func() []metav1.TableColumnDefinition {
	list := columns.Define("Name", "Desired:integer@spec.replicas", "Available:integer@status.replicas", "Age")
	list[0].Format = ""
	return list
}()

func scaleRow(s *autoscalingv1.Scale, now metav1.Time) []any {
	return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), columns.AgeOf(s, now)}
}
