package deployment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Annotations that users and kubectl rollout read.
const (
	annotationRevision        = "deployment.kubernetes.io/revision"
	annotationRevisionHistory = "deployment.kubernetes.io/revision-history"
	annotationDesired         = "deployment.kubernetes.io/desired-replicas"
	annotationMax             = "deployment.kubernetes.io/max-replicas"
	annotationRollback        = "deprecated.deployment.rollback.to"

	hashLabel = appsv1.DefaultDeploymentUniqueLabelKey
)

// ownAnnotations are annotations of a set that are not copied from its deployment.
var ownAnnotations = []string{corev1.LastAppliedConfigAnnotation, annotationRevision, annotationRevisionHistory, annotationDesired, annotationMax, annotationRollback}

// classify finds the new set and the old ones, and maintains their revisions. With create it
// creates the new set if there is none.
func (r *rollout) classify(ctx context.Context, create bool) error {
	r.newSet, r.old = nil, nil
	sets := slices.Clone(r.all)
	slices.SortFunc(sets, byAge)
	for _, rs := range sets {
		if r.newSet == nil && sameTemplate(&rs.Spec.Template, &r.d.Spec.Template) {
			r.newSet = rs // of several, the oldest, so that the choice is stable
		} else {
			r.old = append(r.old, rs)
		}
	}
	last := int64(0)
	for _, rs := range r.old {
		last = max(last, revision(rs))
	}
	next := strconv.FormatInt(last+1, 10)
	if r.newSet != nil {
		return r.refreshNew(ctx, next)
	}
	if !create {
		return nil
	}
	return r.createNew(ctx, next)
}

// byAge orders by creation, then name.
func byAge(a, b *appsv1.ReplicaSet) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}

func revision(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// sameTemplate compares two templates without the label pod-template-hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, hashLabel)
	delete(b.Labels, hashLabel)
	return equality.Semantic.DeepEqual(a, b)
}

// refreshNew updates the annotations and minReadySeconds of the new set, and the deployment's
// revision.
func (r *rollout) refreshNew(ctx context.Context, next string) error {
	rs := r.newSet.DeepCopy()
	changed := r.annotate(rs, next, true)
	if changed || rs.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		rs.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		updated, err := client.Update(ctx, r.env.Client, rs)
		if err != nil {
			return err
		}
		r.replace(updated)
	}
	stale := r.setRevision(r.newSet.Annotations[annotationRevision])
	if stale {
		// Annotations change through the status subresource, as upstream's: that does not raise the
		// generation.
		updated, err := client.UpdateStatus(ctx, r.env.Client, r.d)
		if err != nil {
			return err
		}
		r.d = updated.DeepCopy()
	}
	if r.hasDeadline() && condition(&r.d.Status, appsv1.DeploymentProgressing) == nil {
		setCondition(&r.d.Status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFoundSet, fmt.Sprintf("Found new replica set %q", r.newSet.Name)))
		updated, err := client.UpdateStatus(ctx, r.env.Client, r.d)
		if err != nil {
			return err
		}
		r.d = updated.DeepCopy()
	}
	return nil
}

// setRevision sets the deployment's revision annotation and reports whether it changed.
func (r *rollout) setRevision(n string) bool {
	if r.d.Annotations[annotationRevision] == n {
		return false
	}
	if r.d.Annotations == nil {
		r.d.Annotations = map[string]string{}
	}
	r.d.Annotations[annotationRevision] = n
	return true
}

// replace replaces a set in the lists by its updated version.
func (r *rollout) replace(updated *appsv1.ReplicaSet) {
	for _, list := range [][]*appsv1.ReplicaSet{r.all, r.old} {
		for i := range list {
			if list[i].UID == updated.UID {
				list[i] = updated
			}
		}
	}
	if r.newSet != nil && r.newSet.UID == updated.UID {
		r.newSet = updated
	}
}

// annotate copies the deployment's annotations to its new set and raises the set's revision. A
// reused set keeps its earlier revisions in its history annotation.
func (r *rollout) annotate(rs *appsv1.ReplicaSet, next string, exists bool) (changed bool) {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	for k, v := range r.d.Annotations {
		if have, ok := rs.Annotations[k]; slices.Contains(ownAnnotations, k) || (ok && have == v) {
			continue
		}
		rs.Annotations[k] = v
		changed = true
	}
	if have := rs.Annotations[annotationRevision]; revisionNumber(have) < revisionNumber(next) {
		rs.Annotations[annotationRevision] = next
		changed = true
		if have != "" && exists {
			history := rs.Annotations[annotationRevisionHistory]
			if history == "" {
				rs.Annotations[annotationRevisionHistory] = have
			} else if !slices.Contains(strings.Split(history, ","), have) {
				rs.Annotations[annotationRevisionHistory] = history + "," + have
			}
		}
	}
	if !exists && r.annotateSize(rs) {
		changed = true
	}
	return changed
}

func revisionNumber(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// annotateSize records the sizes from which a later proportional scaling starts.
func (r *rollout) annotateSize(rs *appsv1.ReplicaSet) (changed bool) {
	surge, _ := r.limits()
	want := map[string]string{
		annotationDesired: strconv.Itoa(int(r.replicas())),
		annotationMax:     strconv.Itoa(int(r.replicas() + surge)),
	}
	for k, v := range want {
		if rs.Annotations[k] != v {
			if rs.Annotations == nil {
				rs.Annotations = map[string]string{}
			}
			rs.Annotations[k] = v
			changed = true
		}
	}
	return changed
}

// createNew creates the set for the deployment's template.
func (r *rollout) createNew(ctx context.Context, next string) error {
	template := r.d.Spec.Template.DeepCopy()
	hash := controller.Hash(template, r.d.Status.CollisionCount)
	template.Labels = with(template.Labels, hashLabel, hash)
	selector := r.d.Spec.Selector.DeepCopy()
	selector.MatchLabels = with(selector.MatchLabels, hashLabel, hash)
	replicas := int32(0)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.d.Namespace, Name: r.d.Name + "-" + hash, Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.d, deploymentKind)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, MinReadySeconds: r.d.Spec.MinReadySeconds, Selector: selector, Template: *template},
	}
	replicas = r.newReplicas(rs, append(slices.Clone(r.old), rs))
	r.annotate(rs, next, false)

	created, err := client.Create(ctx, r.env.Client, rs)
	switch {
	case apierrors.IsAlreadyExists(err):
		created, err = r.sameNamed(ctx, rs, err)
		if err != nil {
			return err
		}
	case controller.NamespaceTerminating(err):
		return nil
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
		if r.hasDeadline() {
			setCondition(&r.d.Status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, message))
			if _, err := client.UpdateStatus(ctx, r.env.Client, r.d); err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		r.env.Events.Eventf(r.d, nil, corev1.EventTypeWarning, reasonCreateError, "Create", "%s", message)
		return err
	default:
		if replicas > 0 {
			r.env.Events.Eventf(r.d, created, corev1.EventTypeNormal, "ScalingReplicaSet", "Scale", "Scaled up replica set %s from 0 to %d", created.Name, replicas)
		}
	}
	r.newSet = created
	r.all = append(r.all, created)
	if r.setRevision(created.Annotations[annotationRevision]) {
		updated, err := client.UpdateStatus(ctx, r.env.Client, r.d)
		if err != nil {
			return err
		}
		r.d = updated.DeepCopy()
	}
	if r.hasDeadline() {
		setCondition(&r.d.Status, r.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonNewSet, fmt.Sprintf("Created new replica set %q", created.Name)))
		updated, err := client.UpdateStatus(ctx, r.env.Client, r.d)
		if err != nil {
			return err
		}
		r.d = updated.DeepCopy()
	}
	return nil
}

// sameNamed handles a set that already has the wanted name. Either it is the deployment's own after
// all, or two templates have the same hash; then a higher collisionCount gives another name next
// time.
func (r *rollout) sameNamed(ctx context.Context, rs *appsv1.ReplicaSet, exists error) (*appsv1.ReplicaSet, error) {
	have, err := client.Get[*appsv1.ReplicaSet](ctx, r.env.Client, rs.Namespace, rs.Name)
	if err != nil {
		return nil, err
	}
	if ref := metav1.GetControllerOfNoCopy(have); ref != nil && ref.UID == r.d.UID && sameTemplate(&have.Spec.Template, &rs.Spec.Template) {
		return have, nil
	}
	count := int32(1)
	if r.d.Status.CollisionCount != nil {
		count += *r.d.Status.CollisionCount
	}
	r.d.Status.CollisionCount = &count
	if _, err := client.UpdateStatus(ctx, r.env.Client, r.d); err != nil {
		return nil, err
	}
	return nil, exists
}

func with(m map[string]string, k, v string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// cleanUp deletes the oldest idle sets beyond revisionHistoryLimit.
func (r *rollout) cleanUp(ctx context.Context) error {
	if r.d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	var candidates []*appsv1.ReplicaSet
	for _, rs := range r.old {
		if rs.DeletionTimestamp == nil {
			candidates = append(candidates, rs)
		}
	}
	excess := len(candidates) - int(*r.d.Spec.RevisionHistoryLimit)
	if excess <= 0 {
		return nil
	}
	slices.SortFunc(candidates, func(a, b *appsv1.ReplicaSet) int {
		if c := cmp.Compare(revision(a), revision(b)); c != 0 {
			return c
		}
		return byAge(a, b)
	})
	for _, rs := range candidates[:excess] {
		if rs.Status.Replicas != 0 || replicasOf(rs.Spec.Replicas) != 0 || rs.Generation > rs.Status.ObservedGeneration {
			continue
		}
		err := client.Delete[*appsv1.ReplicaSet](ctx, r.env.Client, rs.Namespace, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rs.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
