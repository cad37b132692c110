package resource

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

var deploymentColumns = columns.Define("Name", "Ready=Number of the pod with ready state", "Up-to-date@status.updatedReplicas", "Available@status.availableReplicas", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func deploymentRow(d *appsv1.Deployment, now metav1.Time) []any {
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, validate.Deref(d.Spec.Replicas)), int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), columns.AgeOf(d, now),
		containerNames(&d.Spec.Template.Spec), containerImages(&d.Spec.Template.Spec), columns.SelectorText(d.Spec.Selector),
	}
}

var replicaSetColumns = columns.Define("Name", "Desired:integer@spec.replicas", "Current:integer@status.replicas", "Ready:integer@status.readyReplicas", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func replicaSetRow(r *appsv1.ReplicaSet, now metav1.Time) []any {
	return []any{
		r.Name, int64(validate.Deref(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), columns.AgeOf(r, now),
		containerNames(&r.Spec.Template.Spec), containerImages(&r.Spec.Template.Spec), columns.SelectorText(r.Spec.Selector),
	}
}

var daemonSetColumns = columns.Define("Name", "Desired:integer@status.desiredNumberScheduled", "Current:integer@status.currentNumberScheduled", "Ready:integer@status.numberReady",
	"Up-to-date:integer@status.updatedNumberScheduled", "Available:integer@status.numberAvailable", "Node Selector@spec.template.spec.nodeSelector", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func daemonSetRow(d *appsv1.DaemonSet, now metav1.Time) []any {
	s := &d.Status
	return []any{
		d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady), int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), columns.AgeOf(d, now),
		containerNames(&d.Spec.Template.Spec), containerImages(&d.Spec.Template.Spec), columns.SelectorText(d.Spec.Selector),
	}
}

var statefulSetColumns = columns.Define("Name", "Ready=Number of the pod with ready state", "Age", "+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.")

func statefulSetRow(s *appsv1.StatefulSet, now metav1.Time) []any {
	return []any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, validate.Deref(s.Spec.Replicas)), columns.AgeOf(s, now),
		containerNames(&s.Spec.Template.Spec), containerImages(&s.Spec.Template.Spec),
	}
}

var controllerRevisionColumns = columns.Define("Name", "Controller=Controller of the object", "Revision@revision", "Age")

func controllerRevisionRow(r *appsv1.ControllerRevision, now metav1.Time) []any {
	controller := columns.None
	if ref := metav1.GetControllerOf(r); ref != nil {
		group, _, grouped := strings.Cut(ref.APIVersion, "/")
		controller = strings.ToLower(ref.Kind)
		if grouped {
			controller += "." + group
		}
		controller += "/" + ref.Name
	}
	return []any{r.Name, controller, r.Revision, columns.AgeOf(r, now)}
}

var jobColumns = columns.Define("Name", "Status=Status of the job.", "Completions@status.succeeded", "Duration=Time required to complete the job.", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.selector")

func jobRow(j *batchv1.Job, now metav1.Time) []any {
	var completions string
	parallelism := validate.Deref(j.Spec.Parallelism)
	switch {
	case j.Spec.Completions != nil:
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		completions = fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	default:
		completions = fmt.Sprintf("%d/1", j.Status.Succeeded)
	}
	took := ""
	if start := j.Status.StartTime; start != nil {
		end := now.Time
		if j.Status.CompletionTime != nil {
			end = j.Status.CompletionTime.Time
		}
		took = duration.HumanDuration(end.Sub(start.Time))
	}
	return []any{
		j.Name, jobStatus(j), completions, took, columns.AgeOf(j, now),
		containerNames(&j.Spec.Template.Spec), containerImages(&j.Spec.Template.Spec), columns.SelectorText(j.Spec.Selector),
	}
}

func jobStatus(j *batchv1.Job) string {
	is := func(kind batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == kind {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

var cronJobColumns = columns.Define("Name", "Schedule@spec.schedule", "Timezone@spec.timeZone", "Suspend:boolean@spec.suspend", "Active:integer@status.active", "Last Schedule@status.lastScheduleTime", "Age",
	"+Containers=Names of each container in the template.", "+Images=Images referenced by each container in the template.", "+Selector@spec.jobTemplate.spec.selector")

func cronJobRow(c *batchv1.CronJob, now metav1.Time) []any {
	last := columns.None
	if t := c.Status.LastScheduleTime; t != nil {
		last = columns.Age(*t, now)
	}
	job := &c.Spec.JobTemplate.Spec
	return []any{
		c.Name, c.Spec.Schedule, columns.OrNone(validate.Deref(c.Spec.TimeZone)), columns.Title(validate.Deref(c.Spec.Suspend)), int64(len(c.Status.Active)), last, columns.AgeOf(c, now),
		containerNames(&job.Template.Spec), containerImages(&job.Template.Spec), columns.OrNone(columns.SelectorText(job.Selector)),
	}
}

var disruptionBudgetColumns = columns.Define("Name", "Min Available=The minimum number of pods that must be available.", "Max Unavailable=The maximum number of pods that may be unavailable.",
	"Allowed Disruptions:integer=Calculated number of pods that may be disrupted at this time.", "Age")

func disruptionBudgetRow(p *policyv1.PodDisruptionBudget, now metav1.Time) []any {
	least, most := "N/A", "N/A"
	if p.Spec.MinAvailable != nil {
		least = p.Spec.MinAvailable.String()
	}
	if p.Spec.MaxUnavailable != nil {
		most = p.Spec.MaxUnavailable.String()
	}
	return []any{p.Name, least, most, int64(p.Status.DisruptionsAllowed), columns.AgeOf(p, now)}
}

var autoscalerColumns = columns.Define("Name", "Reference@spec.scaleTargetRef", "Targets@spec.metrics", "MinPods@spec.minReplicas", "MaxPods@spec.maxReplicas", "Replicas@status.currentReplicas", "Age")

func autoscalerRow(h *autoscalingv2.HorizontalPodAutoscaler, now metav1.Time) []any {
	least := columns.Unset
	if h.Spec.MinReplicas != nil {
		least = strconv.Itoa(int(*h.Spec.MinReplicas))
	}
	return []any{
		h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, autoscalerTargets(h), least,
		int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas), columns.AgeOf(h, now),
	}
}

// autoscalerTargets lists current and desired value of at most two metrics.
func autoscalerTargets(h *autoscalingv2.HorizontalPodAutoscaler) string {
	const limit = 2
	if len(h.Spec.Metrics) == 0 {
		return columns.None
	}
	var list []string
	for i := range h.Spec.Metrics {
		var current *autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			current = &h.Status.CurrentMetrics[i]
		}
		list = append(list, metricText(&h.Spec.Metrics[i], current))
	}
	if len(list) > limit {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], ", "), len(list)-limit)
	}
	return strings.Join(list, ", ")
}

func metricText(m *autoscalingv2.MetricSpec, current *autoscalingv2.MetricStatus) string {
	var target autoscalingv2.MetricTarget
	var value *autoscalingv2.MetricValueStatus
	prefix := ""
	switch {
	case m.External != nil:
		target = m.External.Target
		if current != nil && current.External != nil {
			value = &current.External.Current
		}
	case m.Pods != nil:
		target = m.Pods.Target
		if current != nil && current.Pods != nil {
			value = &current.Pods.Current
		}
	case m.Object != nil:
		target = m.Object.Target
		if current != nil && current.Object != nil {
			value = &current.Object.Current
		}
	case m.Resource != nil:
		target, prefix = m.Resource.Target, string(m.Resource.Name)+": "
		if current != nil && current.Resource != nil {
			value = &current.Resource.Current
		}
	case m.ContainerResource != nil:
		target, prefix = m.ContainerResource.Target, string(m.ContainerResource.Name)+": "
		if current != nil && current.ContainerResource != nil {
			value = &current.ContainerResource.Current
		}
	default:
		return "<unknown type>"
	}
	is := columns.Unknown
	switch {
	case target.AverageUtilization != nil:
		if value != nil && value.AverageUtilization != nil {
			is = fmt.Sprintf("%d%%", *value.AverageUtilization)
		}
		return fmt.Sprintf("%s%s/%d%%", prefix, is, *target.AverageUtilization)
	case target.AverageValue != nil:
		if value != nil && value.AverageValue != nil {
			is = value.AverageValue.String()
		}
		average := " (avg)"
		if m.Pods != nil || m.Resource != nil || m.ContainerResource != nil {
			average = ""
		}
		return prefix + is + "/" + target.AverageValue.String() + average
	case target.Value != nil:
		if value != nil && value.Value != nil {
			is = value.Value.String()
		}
		return prefix + is + "/" + target.Value.String()
	}
	return prefix + is + "/<auto>"
}
