package why

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// causeLease is the cause of a leader that is gone.
const causeLease = "lease-not-renewed"

// lease explains a Lease whose holder does not renew it: a leader election without a leader.
func lease(s *Snapshot, l *coordinationv1.Lease) []Finding {
	if l.Namespace == corev1.NamespaceNodeLease || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil {
		return nil
	}
	lasts := 15 * time.Second
	if l.Spec.LeaseDurationSeconds != nil {
		lasts = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	late := s.Now.Sub(l.Spec.RenewTime.Time)
	if late < lasts+stuckAfter {
		return nil
	}
	f := one(causeLease, fmt.Sprintf("its holder %s has not renewed it for %s; it lasts %s.", *l.Spec.HolderIdentity, age(late), age(lasts)),
		"Start the program that holds it, or look at why no other takes over: its pods and their logs.")
	return f
}
