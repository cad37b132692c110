package controller

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// MirrorInterval is the interval at which a Mirror renews its Lease. The Lease lasts three times as
// long, so readers see a leader that is alive. No election depends on it: each renewal costs a disk
// write, and a node renews its own Lease six times as often.
const MirrorInterval = time.Minute

// Mirror shows in a Lease, as upstream's components do, which process leads. The leader was elected
// elsewhere (ADR 0070): the Mirror takes the Lease whoever holds it. A component outside of this
// cluster's servers that uses the same Lease then waits, or stops.
type Mirror struct {
	Client    client.Interface
	Events    client.Recorder // may be nil
	Namespace string          // such as kube-system
	Name      string          // such as kube-controller-manager
	Identity  string          // host name and a unique part
	// Interval is the interval of renewals; 0 means the constant.
	Interval time.Duration
	Log      *slog.Logger // nil is slog.Default()
}

// Run takes the Lease and renews it until ctx ends.
func (m Mirror) Run(ctx context.Context) {
	if m.Interval == 0 {
		m.Interval = MirrorInterval
	}
	if m.Log == nil {
		m.Log = slog.Default()
	}
	for first := true; ; {
		wait := m.Interval
		lease, err := m.write(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			wait = min(wait, time.Second)
			if !apierrors.IsNotFound(err) { // in a new cluster, the namespace does not exist yet
				m.Log.Warn("cannot write the leader's Lease; trying again", "lease", m.Namespace+"/"+m.Name, "err", err)
			}
		case err == nil && first:
			first = false
			if m.Events != nil {
				m.Events.Eventf(lease, nil, corev1.EventTypeNormal, "LeaderElection", "Lead", "%s became leader", m.Identity)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// write takes or renews the Lease.
func (m *Mirror) write(ctx context.Context) (*coordinationv1.Lease, error) {
	r := election{Election: Election{Identity: m.Identity, LeaseDuration: max(3*m.Interval, time.Second)}}
	for {
		lease, err := client.Get[*coordinationv1.Lease](ctx, m.Client, m.Namespace, m.Name)
		if apierrors.IsNotFound(err) {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}, Spec: r.record(nil)}
			if lease, err = client.Create(ctx, m.Client, lease); !apierrors.IsAlreadyExists(err) {
				return lease, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		lease = lease.DeepCopy()
		lease.Spec = r.record(&lease.Spec)
		if lease, err = client.Update(ctx, m.Client, lease); !apierrors.IsConflict(err) {
			return lease, err
		}
	}
}

// Release gives the Lease back, if this process holds it.
func (m Mirror) Release(ctx context.Context) error {
	for {
		lease, err := client.Get[*coordinationv1.Lease](ctx, m.Client, m.Namespace, m.Name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil || value(lease.Spec.HolderIdentity) != m.Identity {
			return err
		}
		lease = lease.DeepCopy()
		lease.Spec = released(&lease.Spec)
		if _, err = client.Update(ctx, m.Client, lease); !apierrors.IsConflict(err) {
			return err
		}
	}
}
