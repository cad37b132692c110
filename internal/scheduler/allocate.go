package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	claimhelper "k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// bindDevicesTimeout is how long devices may take to meet their binding conditions (KEP-5007); it
// is upstream's default. takeBackTimeout bounds the write that takes the devices from the claim
// after that.
const (
	bindDevicesTimeout = 10 * time.Minute
	takeBackTimeout    = 30 * time.Second
)

// conflicts bounds the retries for a claim that others write too, such as pods that share it. After
// these the pod is decided again.
var conflicts = wait.Backoff{Steps: 6, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1}

// allocator carries out the decisions of the DynamicResources plugin: claims get their devices and
// are reserved for the pod.
type allocator struct {
	client  client.Interface
	devices *devices
	metrics *Metrics
}

func (*allocator) Name() string { return framework.DynamicResources }

func decidedDevices(state framework.State) (framework.DeviceDecisions, bool) {
	d, ok := state[framework.DynamicResources].(framework.DeviceDecisions)
	return d, ok
}

// Reserve makes the devices unavailable to later decisions.
func (a *allocator) Reserve(_ context.Context, state framework.State, _ *corev1.Pod, node string) *framework.Status {
	decided, ok := decidedDevices(state)
	if !ok {
		return nil
	}
	found := decided.On(node)
	for _, claim := range decided.Claims() {
		if allocation := found[claim.Name]; allocation != nil {
			a.devices.assume(claim, allocation)
		}
	}
	if own := decided.Extended(node); own != nil {
		a.devices.assume(own.Claim, found[own.Claim.Name])
	}
	return nil
}

// Unreserve releases devices that are not written yet, and the pod's reservations. A written
// allocation stays: the next attempt finds it.
func (a *allocator) Unreserve(ctx context.Context, state framework.State, pod *corev1.Pod, node string) {
	decided, ok := decidedDevices(state)
	if !ok {
		return
	}
	found := decided.On(node)
	if own := decided.Extended(node); own != nil {
		a.releaseExtended(ctx, own, found[own.Claim.Name])
	}
	for _, claim := range decided.Claims() {
		if allocation := found[claim.Name]; allocation != nil {
			a.devices.forget(claim, allocation)
			a.devices.wakePods(framework.ResourceClaimChanged, wantsDevices)
		}
		now, ok := a.devices.claims.Get(claim.Namespace, claim.Name)
		if !ok || now.UID != claim.UID || !claimhelper.IsReservedForPod(pod, now, false) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID},
			"status": map[string]any{"reservedFor": []map[string]any{{"$patch": "delete", "uid": pod.UID}}}})
		if err == nil {
			// If this fails, the controller of claims does it when the pod has ended.
			_, _ = client.Patch[*resourcev1.ResourceClaim](ctx, a.client, claim.Namespace, claim.Name, types.StrategicMergePatchType, patch, "status")
		}
	}
}

// PreBindPreFlight implements framework.PreBindPlugin.
func (a *allocator) PreBindPreFlight(state framework.State, _ *corev1.Pod, node string) bool {
	decided, ok := decidedDevices(state)
	return ok && (len(decided.Claims()) > 0 || decided.Extended(node) != nil)
}

// prepare writes allocations and reservations, and waits until the devices are ready.
func (a *allocator) prepare(ctx context.Context, state framework.State, pod *corev1.Pod, node string, timeout time.Duration) *framework.Status {
	decided, ok := decidedDevices(state)
	if !ok {
		return nil
	}
	found, claims := decided.On(node), slices.Clone(decided.Claims())
	for _, claim := range claims {
		if err := a.bind(ctx, claim, found[claim.Name], pod); err != nil {
			return framework.Fail(err)
		}
	}
	if own := decided.Extended(node); own != nil {
		if err := a.bindExtended(ctx, own, found[own.Claim.Name], pod); err != nil {
			return framework.Fail(err)
		}
		claims = append(claims, own.Created)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, claim := range claims {
		if err := a.waitReady(ctx, claim, pod, node); err != nil {
			return framework.Fail(err)
		}
	}
	return nil
}

// bind writes the claim's allocation and the pod's reservation. A nil allocation means that the
// claim already has one. After a conflict or a lost answer it reads the claim again.
func (a *allocator) bind(ctx context.Context, claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult, pod *corev1.Pod) error {
	err := retryUntilAnswered(ctx, func() error {
		return retry.RetryOnConflict(conflicts, func() error { return a.tryBind(ctx, claim, allocation, pod) })
	})
	if err != nil {
		return fmt.Errorf("add allocation and reservation to claim %s: %w", claim.Name, err)
	}
	if allocation != nil {
		a.devices.forget(claim, allocation) // the View shows it now
		a.devices.wakeUsers(claim)
	}
	return nil
}

func (a *allocator) tryBind(ctx context.Context, claim *resourcev1.ResourceClaim, allocation *resourcev1.AllocationResult, pod *corev1.Pod) error {
	now, err := client.Get[*resourcev1.ResourceClaim](ctx, a.client, claim.Namespace, claim.Name)
	if err != nil {
		return err
	}
	switch {
	case now.UID != claim.UID || now.DeletionTimestamp != nil:
		return decideAgain(fmt.Sprintf("claim %s got deleted in the meantime", claim.Name))
	case allocation != nil && same(now.Status.Allocation, allocation) && claimhelper.IsReservedForPod(pod, now, false):
		return a.waitShown(ctx, now) // an earlier attempt, whose answer was lost, has written it
	case allocation != nil && now.Status.Allocation != nil:
		return decideAgain(fmt.Sprintf("claim %s got allocated elsewhere in the meantime", claim.Name))
	case allocation == nil && now.Status.Allocation == nil:
		return decideAgain(fmt.Sprintf("claim %s got deallocated elsewhere in the meantime", claim.Name))
	case allocation == nil && claimhelper.IsReservedForPod(pod, now, false):
		return nil
	}
	now = now.DeepCopy()
	if allocation != nil && !slices.Contains(now.Finalizers, resourcev1.Finalizer) {
		// The finalizer comes first: a claim must not be deleted while it has devices.
		now.Finalizers = append(now.Finalizers, resourcev1.Finalizer)
		if now, err = client.Update(ctx, a.client, now); err != nil {
			return err
		}
		now = now.DeepCopy()
	}
	if allocation != nil {
		now.Status.Allocation = allocation.DeepCopy()
		stamp := metav1.Now()
		now.Status.Allocation.AllocationTimestamp = &stamp
	}
	if !claimhelper.IsReservedForPod(pod, now, false) {
		now.Status.ReservedFor = append(now.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	_, err = client.UpdateStatus(ctx, a.client, now)
	return err
}

// same compares allocations, but not the time of writing.
func same(written, decided *resourcev1.AllocationResult) bool {
	if written == nil {
		return false
	}
	plain := *written
	plain.AllocationTimestamp = decided.AllocationTimestamp
	return apiequality.Semantic.DeepEqual(&plain, decided)
}

// waitShown waits until the View shows the version of the claim that was just read.
func (a *allocator) waitShown(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	revision, err := strconv.ParseInt(claim.ResourceVersion, 10, 64)
	if err != nil {
		return decideAgain(err.Error())
	}
	return a.devices.claims.WaitFor(ctx, revision)
}

// waitReady waits until the claim's devices meet their binding conditions. If they never will, the
// claim loses its devices and the pod is decided again.
func (a *allocator) waitReady(ctx context.Context, claim *resourcev1.ResourceClaim, pod *corev1.Pod, node string) error {
	changed, stop := a.devices.changes.expect(claimKey(claim.Namespace, claim.Name))
	defer stop()
	for {
		now, ok := a.devices.claims.Get(claim.Namespace, claim.Name)
		if !ok || now.UID != claim.UID || now.Status.Allocation == nil {
			return fmt.Errorf("claim %s got deallocated elsewhere in the meantime", claim.Name)
		}
		ready, err := framework.DevicesReady(now)
		if ready {
			return nil
		}
		if err == nil {
			select {
			case <-changed:
				continue
			case <-time.After(pollInterval):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if context.Cause(ctx) == nil || errors.Is(err, context.DeadlineExceeded) {
			// This write has its own timeout, as ctx may be over.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
			_, failed := a.takeBack(ctx, claim, pod)
			cancel()
			if failed != nil {
				err = fmt.Errorf("%w; the claim keeps its devices: %w", err, failed)
			}
		}
		return fmt.Errorf("waiting for binding conditions for device on node %s: claim %s: %w", node, claim.Name, err)
	}
}

// onlyFor reports whether no other pod uses the claim.
func onlyFor(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return !slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID != pod.UID })
}

// makeRoom takes the devices from a claim that no other pod uses and that is not usable where the
// pod could run. The claim gets other devices in the next attempt.
func (a *allocator) makeRoom(ctx context.Context, pod *corev1.Pod, inTheWay []*resourcev1.ResourceClaim) error {
	var failed []error
	for _, claim := range inTheWay {
		done, err := a.takeBack(ctx, claim, pod)
		if done {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// takeBack takes the devices from a claim unless another pod uses it, and reports whether it did. A
// conflict is no error: another pod may just have begun to use the claim.
func (a *allocator) takeBack(ctx context.Context, claim *resourcev1.ResourceClaim, pod *corev1.Pod) (bool, error) {
	now, ok := a.devices.claims.Get(claim.Namespace, claim.Name)
	if ok && now.UID == claim.UID && framework.IsExtendedClaim(now) {
		return true, a.deleteExtended(ctx, now)
	}
	if !ok || now.UID != claim.UID || now.Status.Allocation == nil || !onlyFor(now, pod) {
		return false, nil
	}
	now = now.DeepCopy()
	now.Status = resourcev1.ResourceClaimStatus{}
	_, err := client.UpdateStatus(ctx, a.client, now)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsConflict(err):
		return false, nil
	default:
		return false, fmt.Errorf("take the devices from claim %s: %w", claim.Name, err)
	}
}
