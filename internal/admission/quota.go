package admission

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/resource/core"
)

// resourceQuota charges a write to the quotas of its namespace before it admits the write.
// Compare-and-swap on each quota's status keeps two writes from sharing the last free unit. The
// quota controller returns usage that failed or deleted objects no longer need.
type resourceQuota struct {
	base
	client  client.Interface
	quotas  *client.Lazy[*corev1.ResourceQuota]
	limited []LimitedResource
	now     func() time.Time
	turns   *quotaTurns
}

func newResourceQuota(c client.Interface, quotas *client.Lazy[*corev1.ResourceQuota], limited []LimitedResource, now func() time.Time) Plugin {
	return resourceQuota{base{"ResourceQuota", []Operation{Create, Update}}, c, quotas, limited, now, newQuotaTurns()}
}

// quotaAttempts limits the retries after conflicts. Writes of one server take turns, so the others
// of a conflict are other servers and the quota controller.
const quotaAttempts = 100

// quotaTurns lets the writes of this server that charge the same quota go one after the other. Only
// one of them could succeed at a time anyway. Quotas share a few turns.
type quotaTurns [64]chan struct{}

func newQuotaTurns() *quotaTurns {
	t := new(quotaTurns)
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

// wait waits for the quota's turn.
func (t *quotaTurns) wait(ctx context.Context, quota *corev1.ResourceQuota) (done func(), err error) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(quota.UID))
	turn := t[sum.Sum32()%uint32(len(t))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Validate implements Validator.
func (p resourceQuota) Validate(ctx context.Context, a *Attributes) error {
	resize := a.is("", "pods", "resize")
	if a.Namespace == "" || a.Subresource != "" && !resize || a.Object == nil || !resize && a.Operation == Update && !changesUsage(a.Object) {
		return nil
	}
	view, err := p.quotas.View()
	if err != nil {
		return err
	}
	quotas := view.List(a.Namespace, nil)
	if len(quotas) == 0 && len(p.limited) == 0 {
		return nil
	}
	delta := p.delta(a)
	if err := p.restrict(a, quotas, delta); err != nil {
		return err
	}
	for _, quota := range quotas {
		if a.Charged[quota.UID] {
			continue
		}
		if err := p.charge(ctx, a, quota, delta); err != nil {
			return err
		}
		if a.Charged != nil && !a.DryRun {
			a.Charged[quota.UID] = true
		}
	}
	return nil
}

// changesUsage reports whether an update of the object can raise its usage: only claims and
// Services can. Pods change theirs by resize.
func changesUsage(obj runtime.Object) bool {
	switch obj.(type) {
	case *corev1.PersistentVolumeClaim, *corev1.Service:
		return true
	}
	return false
}

// delta returns the write's additional usage.
func (p resourceQuota) delta(a *Attributes) corev1.ResourceList {
	now := metav1.NewTime(p.now())
	used := core.QuotaUsage(a.groupResource(), a.Object, now)
	if a.Operation == Create || a.OldObject == nil {
		return used
	}
	for name, before := range core.QuotaUsage(a.groupResource(), a.OldObject, now) {
		after := used[name]
		after.Sub(before)
		used[name] = after
	}
	return used
}

// charge adds the delta to one quota, or returns the error why it does not fit.
func (p resourceQuota) charge(ctx context.Context, a *Attributes, quota *corev1.ResourceQuota, delta corev1.ResourceList) error {
	// First without the turn: most writes of a namespace are not limited by each of its quotas.
	if next, err := p.next(a, quota, delta); next == nil && err == nil || a.DryRun {
		return err
	}
	if a.Instant {
		return ErrNotInstant
	}
	done, err := p.turns.wait(ctx, quota)
	if err != nil {
		return err
	}
	defer done()
	if view, err := p.quotas.View(); err == nil { // the write before this one has changed it
		if newer, ok := view.Get(quota.Namespace, quota.Name); ok {
			quota = newer
		}
	}
	for range quotaAttempts {
		next, err := p.next(a, quota, delta)
		if next == nil || err != nil || a.DryRun {
			return err
		}
		_, err = client.UpdateStatus(ctx, p.client, next)
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return a.forbid(fmt.Errorf("failed quota: %s: %w", quota.Name, err))
		}
		if quota, err = client.Get[*corev1.ResourceQuota](ctx, p.client, quota.Namespace, quota.Name); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return a.forbid(fmt.Errorf("failed quota: %w", err))
		}
	}
	return apierrors.NewConflict(a.groupResource(), a.objectName(), fmt.Errorf("quota %s changed too often, please try again", quota.Name))
}

// next returns the quota with the delta added to its usage; nil if the quota does not bound the
// write's resources.
func (p resourceQuota) next(a *Attributes, quota *corev1.ResourceQuota, delta corev1.ResourceList) (*corev1.ResourceQuota, error) {
	if !core.QuotaConcerns(quota, a.Object) {
		return nil, nil
	}
	hard := quota.Status.Hard
	if len(hard) == 0 {
		hard = quota.Spec.Hard
	}
	if pod, ok := a.Object.(*corev1.Pod); ok && a.Operation == Create {
		if missing := core.QuotaMissing(pod, slices.Collect(maps.Keys(hard))); len(missing) > 0 {
			return nil, a.forbid(fmt.Errorf("failed quota: %s: must specify %s", quota.Name, strings.Join(missing, "; ")))
		}
	}
	if a.Operation == Update && a.OldObject != nil && !core.QuotaConcerns(quota, a.OldObject) {
		// The write brings the object into the quota's scope: all of its usage is new there.
		delta = core.QuotaUsage(a.groupResource(), a.Object, metav1.NewTime(p.now()))
	}
	requested := corev1.ResourceList{}
	for name, value := range delta {
		if _, bounded := hard[name]; bounded && value.Sign() > 0 {
			requested[name] = value
		}
	}
	if len(requested) == 0 {
		return nil, nil
	}
	// The status of a new quota is incomplete until the quota controller has counted.
	used := quota.Status.Used
	var unknown []string
	for name := range requested {
		if _, ok := used[name]; !ok {
			unknown = append(unknown, string(name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, a.forbid(fmt.Errorf("status unknown for quota: %s, resources: %s", quota.Name, strings.Join(unknown, ",")))
	}
	next := quota.DeepCopy()
	exceeded := corev1.ResourceList{}
	for name, value := range requested {
		sum := used[name].DeepCopy()
		sum.Add(value)
		next.Status.Used[name] = sum
		if limit := hard[name]; sum.Cmp(limit) > 0 {
			exceeded[name] = value
		}
	}
	if len(exceeded) > 0 {
		return nil, a.forbid(fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
			quota.Name, listed(exceeded, exceeded), listed(used, exceeded), listed(hard, exceeded)))
	}
	return next, nil
}

// listed formats quantities as upstream does: "cpu=1,memory=2Gi".
func listed(values, of corev1.ResourceList) string {
	var parts []string
	for _, name := range names(of) {
		value := values[name]
		parts = append(parts, string(name)+"="+value.String())
	}
	return strings.Join(parts, ",")
}
