package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// ErrLeadershipLost means that the lease could not be renewed in time, so another process may lead
// now.
var ErrLeadershipLost = errors.New("leadership lost")

// Election elects one of several processes as leader by a Lease, compatible with upstream's
// components. It uses client.Interface because client-go's lock would link the whole typed
// clientset.
type Election struct {
	Client    client.Interface
	Events    client.Recorder // may be nil
	Namespace string          // such as kube-system
	Name      string          // such as kube-controller-manager
	Identity  string          // host name and a unique part
	Leading   *Leading        // records the result; may be nil

	// Zero values mean the constants of the same names.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// The default times of an Election, as upstream's.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

// election is the state of one Run.
type election struct {
	Election
	seen *coordinationv1.LeaseSpec // the record last read
	// time of the first read of that record by our clock, since other clocks are not trusted
	seenAt   time.Time
	observed *coordinationv1.Lease
}

// Run waits until this process leads, then calls lead with a context that ends with the leadership,
// and waits for lead to return. It releases the lease at the end.
//
// If the lease is lost, Run waits for lead only until another process can get the lease, since this
// process has to exit then. It returns lead's error, ErrLeadershipLost, or nil if ctx ended.
func (e Election) Run(ctx context.Context, lead func(context.Context) error) error {
	if e.LeaseDuration == 0 {
		e.LeaseDuration = LeaseDuration
	}
	if e.RenewDeadline == 0 {
		e.RenewDeadline = RenewDeadline
	}
	if e.RetryPeriod == 0 {
		e.RetryPeriod = RetryPeriod
	}
	r := &election{Election: e}
	for !r.try(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(e.RetryPeriod):
		}
	}
	e.Leading.setRenewed(time.Now())
	defer e.Leading.ended()
	slog.Info("leading", "lease", e.Namespace+"/"+e.Name, "identity", e.Identity)
	if e.Events != nil {
		e.Events.Eventf(r.observed, nil, corev1.EventTypeNormal, "LeaderElection", "Lead", "%s became leader", e.Identity)
	}
	leading, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	go func() { result <- lead(leading) }()

	ticker := time.NewTicker(e.RetryPeriod)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case err := <-result:
			r.release()
			return err
		case <-ctx.Done():
			err := <-result
			r.release()
			return err
		case <-ticker.C:
			// A hanging request must leave time for another one.
			left := e.RenewDeadline - time.Since(renewed)
			attempt, cancel := context.WithTimeout(ctx, max(min(left, e.RenewDeadline/2), time.Millisecond))
			ok := r.try(attempt)
			cancel()
			if ok {
				renewed = time.Now()
				e.Leading.setRenewed(renewed)
			} else if time.Since(renewed) >= e.RenewDeadline {
				stop()
				lost := fmt.Errorf("lease %s/%s: %w", e.Namespace, e.Name, ErrLeadershipLost)
				select {
				case err := <-result:
					return errors.Join(lost, err)
				case <-time.After(e.LeaseDuration - e.RenewDeadline):
					return lost
				}
			}
		}
	}
}

// try acquires or renews the lease.
func (r *election) try(ctx context.Context) bool {
	lease, err := client.Get[*coordinationv1.Lease](ctx, r.Client, r.Namespace, r.Name)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}, Spec: r.record(nil)}
		created, err := client.Create(ctx, r.Client, lease)
		return r.wrote(created, err)
	}
	if err != nil {
		slog.Warn("cannot read the leader lease", "lease", r.Namespace+"/"+r.Name, "error", err)
		return false
	}
	if r.seen == nil || !sameRecord(r.seen, &lease.Spec) {
		r.seen, r.seenAt = lease.Spec.DeepCopy(), time.Now()
	}
	holder := value(lease.Spec.HolderIdentity)
	if holder != "" && holder != r.Identity && time.Since(r.seenAt) < time.Duration(value(lease.Spec.LeaseDurationSeconds))*time.Second {
		return false
	}
	lease = lease.DeepCopy()
	lease.Spec = r.record(&lease.Spec)
	updated, err := client.Update(ctx, r.Client, lease)
	return r.wrote(updated, err)
}

func (r *election) wrote(lease *coordinationv1.Lease, err error) bool {
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			slog.Warn("cannot write the leader lease", "lease", r.Namespace+"/"+r.Name, "error", err)
		}
		return false
	}
	r.observed, r.seen, r.seenAt = lease, lease.Spec.DeepCopy(), time.Now()
	return true
}

// record returns the lease's content with this process as the holder.
func (r *election) record(old *coordinationv1.LeaseSpec) coordinationv1.LeaseSpec {
	now := metav1.NowMicro()
	seconds := int32(r.LeaseDuration / time.Second)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &r.Identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32)}
	if old == nil {
		return spec
	}
	spec.LeaseTransitions = old.LeaseTransitions
	if value(old.HolderIdentity) == r.Identity {
		spec.AcquireTime = old.AcquireTime
	} else {
		transitions := value(old.LeaseTransitions) + 1
		spec.LeaseTransitions = &transitions
	}
	return spec
}

// release releases the lease, so that the next leader does not wait for its expiry.
func (r *election) release() {
	ctx, cancel := context.WithTimeout(context.Background(), r.RetryPeriod)
	defer cancel()
	lease := r.observed.DeepCopy()
	lease.Spec = released(&lease.Spec)
	if _, err := client.Update(ctx, r.Client, lease); err != nil {
		slog.Warn("cannot release the leader lease", "lease", r.Namespace+"/"+r.Name, "error", err)
	}
}

// released returns the content of a free lease.
func released(old *coordinationv1.LeaseSpec) coordinationv1.LeaseSpec {
	spec := *old
	now, one, none := metav1.NowMicro(), int32(1), ""
	spec.HolderIdentity, spec.LeaseDurationSeconds, spec.RenewTime, spec.AcquireTime = &none, &one, &now, &now
	return spec
}

func sameRecord(a, b *coordinationv1.LeaseSpec) bool {
	return value(a.HolderIdentity) == value(b.HolderIdentity) && a.RenewTime.Equal(b.RenewTime) && a.AcquireTime.Equal(b.AcquireTime)
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
