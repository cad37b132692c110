package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// TemplatePatch returns the data of a ControllerRevision: a strategic merge patch that restores the
// pod template. kubectl rollout undo applies it.
func TemplatePatch(t *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	var template map[string]any
	if err := json.Unmarshal(raw, &template); err != nil {
		return nil, err
	}
	template["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
}

// TemplateOf returns the pod template that a revision holds.
func TemplateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("controller revision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &data.Spec.Template, nil
}

// SameRevision reports whether two revisions hold the same data, in any order of JSON keys.
func SameRevision(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	ca, errA := json.Marshal(x)
	cb, errB := json.Marshal(y)
	return errA == nil && errB == nil && bytes.Equal(ca, cb)
}

// History manages the ControllerRevisions of one kind.
type History struct {
	Client    client.Interface
	Revisions client.ViewOf[*appsv1.ControllerRevision] // indexed by IndexOwners
	Kind      schema.GroupVersionKind
	HashLabel string
}

// SortRevisions orders by revision number, then age, then name.
func SortRevisions(r []*appsv1.ControllerRevision) {
	slices.SortFunc(r, func(a, b *appsv1.ControllerRevision) int {
		if c := cmp.Compare(a.Revision, b.Revision); c != 0 {
			return c
		}
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

// Ensure finds the template's revision among the owner's or creates it, and gives it the highest
// number. It returns all revisions in order, and the wanted one. If two templates have the same
// hash, Ensure calls collision, which raises the owner's collisionCount and returns the new one.
func (h History) Ensure(ctx context.Context, owner client.Object, all []*appsv1.ControllerRevision, t *corev1.PodTemplateSpec, collisionCount *int32, collision func() (*int32, error),
) ([]*appsv1.ControllerRevision, *appsv1.ControllerRevision, error) {
	data, err := TemplatePatch(t)
	if err != nil {
		return nil, nil, err
	}
	SortRevisions(all)
	next := int64(1)
	if n := len(all); n > 0 {
		next = all[n-1].Revision + 1
	}
	var same *appsv1.ControllerRevision
	for _, r := range all {
		if SameRevision(r.Data.Raw, data) {
			same = r // of several, the newest
		}
	}
	if same != nil {
		if same.Revision < next-1 {
			raised := same.DeepCopy()
			raised.Revision = next
			if raised, err = client.Update(ctx, h.Client, raised); err != nil {
				return nil, nil, err
			}
			all[slices.Index(all, same)], same = raised, raised
			SortRevisions(all)
		}
		return all, same, nil
	}
	for {
		created, err := h.create(ctx, owner, t, data, next, collisionCount)
		if err == nil {
			return append(all, created), created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, nil, err
		}
		have, getErr := client.Get[*appsv1.ControllerRevision](ctx, h.Client, owner.GetNamespace(), owner.GetName()+"-"+Hash(t, collisionCount))
		if getErr != nil {
			return nil, nil, getErr
		}
		if ref := metav1.GetControllerOfNoCopy(have); ref != nil && ref.UID == owner.GetUID() && SameRevision(have.Data.Raw, data) {
			return append(all, have), have, nil
		}
		if collisionCount, err = collision(); err != nil {
			return nil, nil, err
		}
	}
}

func (h History) create(ctx context.Context, owner client.Object, t *corev1.PodTemplateSpec, data []byte, number int64, collisionCount *int32) (*appsv1.ControllerRevision, error) {
	hash := Hash(t, collisionCount)
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), Name: owner.GetName() + "-" + hash,
			Labels: maps.Clone(t.Labels), Annotations: maps.Clone(owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, h.Kind)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	r.Labels[h.HashLabel] = hash
	return client.Create(ctx, h.Client, r)
}

// Trim deletes the oldest unused revisions beyond the limit.
func (h History) Trim(ctx context.Context, all []*appsv1.ControllerRevision, limit *int32, used func(*appsv1.ControllerRevision) bool) error {
	keep := 10
	if limit != nil {
		keep = int(*limit)
	}
	if keep < 0 {
		return nil // keep all
	}
	var idle []*appsv1.ControllerRevision
	for _, r := range all {
		if !used(r) {
			idle = append(idle, r)
		}
	}
	SortRevisions(idle)
	for len(idle) > keep {
		err := client.Delete[*appsv1.ControllerRevision](ctx, h.Client, idle[0].Namespace, idle[0].Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &idle[0].UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		idle = idle[1:]
	}
	return nil
}
